#include "register.h"

namespace fastload::bindings {

void register_decode(nanobind::module_&) {}

}  // namespace fastload::bindings
