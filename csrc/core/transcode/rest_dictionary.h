// What deflate starts from where it packs a record's rest: what most JPEG files have.
#pragma once

#include "base/bytes.h"

namespace fastload {

Bytes rest_dictionary();

}  // namespace fastload
