#include "register.h"

namespace fastload::bindings {

void register_prefetch(nanobind::module_&) {}

}  // namespace fastload::bindings
