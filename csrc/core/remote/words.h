// The messages of a store.
#pragma once

#include <exception>
#include <string>

#include "remote/fetch.h"
#include "remote/options.h"

namespace fastload {

// That something was not read because its reader, or the store, was closed.
std::exception_ptr cancelled(const std::string& name) noexcept;

// What could not be read, how often it was tried, what the last answer was, and what to do.
std::string failure_text(const RemoteOptions& options, const Fetch& fetch,
                         const std::string& answer, Millis waited);
// That it is asked for again, and why.
std::string notice_text(const RemoteOptions& options, const Fetch& fetch,
                        const std::string& answer);
// That a record came with other bytes than were packed, and the right ones when it was asked for
// again. `record` says which.
std::string damage_text(const std::string& record);

}  // namespace fastload
