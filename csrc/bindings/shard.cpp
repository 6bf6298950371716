#include "register.h"

namespace fastload::bindings {

void register_shard(nanobind::module_&) {}

}  // namespace fastload::bindings
