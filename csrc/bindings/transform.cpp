#include "register.h"

namespace fastload::bindings {

void register_transform(nanobind::module_&) {}

}  // namespace fastload::bindings
