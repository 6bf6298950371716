#include "register.h"

namespace fastload::bindings {

void register_pack(nanobind::module_&) {}

}  // namespace fastload::bindings
