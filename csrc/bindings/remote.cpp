// RemoteStore.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "convert.h"
#include "gil.h"
#include "register.h"
#include "remote/remote_store.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using Memory = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Signals are for the main thread, and it may wait here. Wheels are for glibc 2.28, and gettid()
// came with 2.30.
void check_signals() {
  if (::syscall(SYS_gettid) != ::getpid()) return;
  const GilAcquire gil(std::nothrow);
  if (gil && PyErr_CheckSignals() != 0) throw nb::python_error();
}

std::function<void(const std::string&)> make_renew(nb::object renew, const std::string& name) {
  if (renew.is_none()) return {};
  return [owner = shared_owner(std::move(renew)), name](const std::string& path) {
    const GilAcquire gil("The renewal of credentials");
    try {
      nb::borrow(owner.get())(path);
    } catch (nb::python_error& error) {
      throw Error(ErrorKind::kIo, name + ": other credentials could not be had: " + error.what());
    }
  };
}

std::function<void(const std::string&)> make_warn(nb::object warn) {
  if (warn.is_none()) return {};
  return [owner = shared_owner(std::move(warn))](const std::string& text) {
    const GilAcquire gil(std::nothrow);
    if (!gil) return;  // nobody reads it any more
    try {
      nb::borrow(owner.get())(text);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a warning of a store");
    }
  };
}

Signing to_signing(const std::string& word) {
  if (word == "sigv4") return Signing::kSigV4;
  if (word == "presigned") return Signing::kPresigned;
  if (word == "none") return Signing::kNone;
  throw nb::value_error("signing: sigv4, presigned or none");
}

nb::dict counts_of(const RemoteStore& store) {
  const RemoteCounts counts = store.counts();
  nb::dict result;
  result["requests"] = counts.requests;
  result["bytes"] = counts.bytes;
  result["retries"] = counts.retries;
  result["hedges"] = counts.hedges;
  result["hedges_won"] = counts.hedges_won;
  result["throttled"] = counts.throttled;
  result["stalled"] = counts.stalled;
  result["failed"] = counts.failed;
  result["damaged"] = counts.damaged;
  result["in_flight"] = counts.in_flight;
  result["limit"] = counts.limit;
  result["p50_ms"] = counts.p50;
  result["p95_ms"] = counts.p95;
  return result;
}

}  // namespace

void register_remote(nb::module_& m) {
  nb::class_<RemoteStore>(m, "RemoteStore",
                          "Objects read by HTTP; see csrc/core/remote/remote_store.h.")
      .def(
          "__init__",
          [](RemoteStore* self, std::string base, std::string name, const std::string& signing,
             std::string region, std::string access_key, std::string secret_key, std::string token,
             std::vector<std::pair<std::string, std::string>> headers, std::string ca_file,
             nb::object renew, nb::object warn, const std::optional<Schedule>& schedule) {
            RemoteOptions options;
            options.renew = make_renew(std::move(renew), name);
            options.warn = make_warn(std::move(warn));
            options.base = std::move(base);
            options.name = std::move(name);
            options.signing = to_signing(signing);
            options.region = std::move(region);
            options.headers = std::move(headers);
            options.ca_file = std::move(ca_file);
            options.interrupted = check_signals;
            if (schedule) options.schedule = *schedule;
            new (self) RemoteStore(std::move(options), {std::move(access_key),
                                                        std::move(secret_key), std::move(token)});
          },
          nb::arg("base"), nb::arg("name"), nb::kw_only(), nb::arg("signing") = "sigv4",
          nb::arg("region") = "", nb::arg("access_key") = "", nb::arg("secret_key") = "",
          nb::arg("token") = "",
          nb::arg("headers") = std::vector<std::pair<std::string, std::string>>(),
          nb::arg("ca_file") = "", nb::arg("renew").none() = nb::none(),
          nb::arg("warn").none() = nb::none(), nb::arg("schedule").none() = nb::none(),
          "base: address with bucket, percent-encoded. name: what messages call it. signing: "
          "sigv4, "
          "presigned or none. headers: (name, value)s of each request. renew(path): called once "
          "for "
          "a request that was denied, on the thread that waits for it; calls set_credentials() or "
          "set_urls(); must not keep the store alive. warn(text): called once, on such a thread, "
          "when answers are wrong or bytes do not come for long, and once when a record came "
          "damaged; must not keep the store alive, either.")
      .def_prop_ro("name", &RemoteStore::name)
      .def(
          "set_credentials",
          [](RemoteStore& store, std::string access_key, std::string secret_key,
             std::string token) {
            store.set_credentials({std::move(access_key), std::move(secret_key), std::move(token)});
          },
          nb::arg("access_key"), nb::arg("secret_key"), nb::arg("token") = "")
      .def("set_urls", &RemoteStore::set_urls, nb::arg("urls"), "By path; added to those before.")
      .def(
          "head",
          [](RemoteStore& store,
             const std::string& path) -> std::optional<std::pair<uint64_t, std::string>> {
            const GilRelease release;
            const auto head = store.head(path);
            if (!head) return {};
            return std::pair(head->size, head->etag);
          },
          nb::arg("path"), "(size, ETag); None: there is no such object.")
      .def(
          "get",
          [](RemoteStore& store, const std::string& path, uint64_t begin,
             std::optional<uint64_t> end, std::optional<uint64_t> most) {
            std::vector<uint8_t> bytes;
            {
              const GilRelease release;
              bytes = store.get(path, begin, end, most.value_or(RemoteStore::kMostAtOnce));
            }
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("path"), nb::arg("begin") = 0, nb::arg("end").none() = nb::none(),
          nb::arg("most").none() = nb::none(),
          "most: bytes that may come where end is None; an object with more is an error.")
      .def(
          "read_into",
          [](RemoteStore& store, const std::string& path, uint64_t begin, const Memory& memory) {
            const GilRelease release;
            store.read_into(path, begin, {memory.data(), memory.size()});
          },
          nb::arg("path"), nb::arg("begin"), nb::arg("memory"),
          "Fills (n,) uint8 with the bytes from begin on.")
      .def("counts", &counts_of, "What was sent and what came; times in milliseconds.")
      .def("close", &RemoteStore::close, nb::call_guard<GilRelease>(),
           "Ends all reads with an error, those to come, too. Idempotent.");
  nb::class_<Schedule>(m, "Schedule", "When requests are sent again; times in milliseconds.")
      .def(nb::init<>())
      .def_rw("tries", &Schedule::tries)
      .def_rw("patience", &Schedule::patience)
      .def_rw("first_pause", &Schedule::first_pause)
      .def_rw("longest_pause", &Schedule::longest_pause)
      .def_rw("connect", &Schedule::connect)
      .def_rw("stall", &Schedule::stall)
      .def_rw("hedge_floor", &Schedule::hedge_floor)
      .def_rw("hedged_share", &Schedule::hedged_share)
      .def_rw("in_flight", &Schedule::in_flight)
      .def_rw("least_in_flight", &Schedule::least_in_flight)
      .def_rw("most_in_flight", &Schedule::most_in_flight)
      .def_rw("part", &Schedule::part);
}

}  // namespace fastload::bindings
