// How the pictures of a table of records are shown, beyond the pixels that their files store.
#pragma once

namespace fastload {

// Pixels that are no files, raw records among them, are shown as they are.
struct Shown {
  bool turned = false;    // as EXIF or XMP says
  bool on_white = false;  // what is transparent over white; else alpha is dropped

  bool operator==(const Shown&) const = default;
};

}  // namespace fastload
