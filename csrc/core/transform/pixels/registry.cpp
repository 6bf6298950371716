#include "transform/pixels/registry.h"

#include <string>

#include "base/error.h"

namespace fastload {
namespace {

#define FASTLOAD_ADDRESS(name) &name,
constexpr const PixelOperation* kOperations[] = {FASTLOAD_PIXEL_OPERATIONS(FASTLOAD_ADDRESS)};
#undef FASTLOAD_ADDRESS

}  // namespace

std::span<const PixelOperation* const> pixel_operations() { return kOperations; }

const PixelOperation& pixel_operation(std::string_view name) {
  std::string known;
  for (const PixelOperation* operation : kOperations) {
    if (operation->name == name) return *operation;
    known += (known.empty() ? "" : ", ") + std::string(operation->name);
  }
  throw Error(ErrorKind::kValue, "An operation on pixels must be one of " + known +
                                     ". Found: " + std::string(name) + ".");
}

}  // namespace fastload
