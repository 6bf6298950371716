// A library to preload: the k-th call of a libc function that is about a path of our choice fails with an
// errno, or the process is killed right before or behind it. failing_calls.py builds and arms it.
//
// Calls are counted over all threads. A file descriptor's path is what /proc/self/fd says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kOff, kCount, kFail, kFailFrom, kKillBefore, kKillBehind };

static char g_calls[256];          // "write,fsync" or "*"
static char g_pattern[PATH_MAX];  // as fnmatch takes it, "*" crosses slashes
static atomic_long g_seen;
static long g_at = -1;  // from 0
static int g_what = kOff, g_errno;
static char g_last[2 * PATH_MAX];  // the last call that counted, and its path

void failing_calls_arm(const char* calls, const char* pattern, long at, int what, int error) {
  g_what = kOff;
  snprintf(g_calls, sizeof g_calls, ",%s,", calls);
  snprintf(g_pattern, sizeof g_pattern, "%s", pattern);
  g_at = at;
  g_errno = error;
  atomic_store(&g_seen, 0);
  g_what = what;
}

long failing_calls_seen(void) { return atomic_load(&g_seen); }
const char* failing_calls_last(void) { return g_last; }

__attribute__((constructor)) static void arm_by_environment(void) {
  const char* text = getenv("FAILING_CALLS");  // calls|pattern|at|what|errno
  char calls[256], pattern[PATH_MAX];
  long at;
  int what, error;
  if (text != NULL && sscanf(text, "%255[^|]|%4095[^|]|%ld|%d|%d", calls, pattern, &at, &what, &error) == 5)
    failing_calls_arm(calls, pattern, at, what, error);
}

static int wanted(const char* call, int descriptor, const char* path) {
  if (g_what == kOff) return 0;
  char name[64], found[PATH_MAX] = "";
  snprintf(name, sizeof name, ",%s,", call);
  if (strcmp(g_calls, ",*,") != 0 && strstr(g_calls, name) == NULL) return 0;
  size_t used = 0;
  if (path == NULL || (descriptor >= 0 && path[0] != '/')) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const long size = syscall(SYS_readlinkat, AT_FDCWD, link, found, sizeof found - 1);
    used = size > 0 ? (size_t)size : 0;
    found[used] = 0;
  }
  if (path != NULL) snprintf(found + used, sizeof found - used, "%s%s", used != 0 ? "/" : "", path);
  if (fnmatch(g_pattern, found, 0) != 0) return 0;
  snprintf(g_last, sizeof g_last, "%s %.4000s", call, found);
  return 1;
}

static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); }

// 0: make the call; 1: it fails, errno is set; 2: make the call and be killed.
static int verdict(const char* call, int descriptor, const char* path) {
  const int kept = errno;
  if (!wanted(call, descriptor, path)) return errno = kept, 0;
  const long number = atomic_fetch_add(&g_seen, 1);
  const int hit = number == g_at || (g_what == kFailFrom && number > g_at);
  errno = kept;
  if (!hit || g_what == kCount) return 0;
  if (g_what == kKillBefore) die();
  if (g_what == kKillBehind) return 2;
  errno = g_errno;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRAP(type, name, call, descriptor, path, parameters, arguments) \
  type name parameters {                                                \
    static __typeof__(&name) real;                                      \
    if (real == NULL) real = REAL(name);                                \
    const int what = verdict(call, descriptor, path);                   \
    if (what == 1) return (type) - 1;                                   \
    type result = real arguments;                                 \
    if (what == 2) die();                                               \
    return result;                                                      \
  }

WRAP(ssize_t, write, "write", fd, NULL, (int fd, const void* data, size_t size), (fd, data, size))
WRAP(ssize_t, pwrite, "pwrite", fd, NULL, (int fd, const void* data, size_t size, off_t at), (fd, data, size, at))
WRAP(ssize_t, pwrite64, "pwrite", fd, NULL, (int fd, const void* data, size_t size, off64_t at), (fd, data, size, at))
WRAP(ssize_t, writev, "writev", fd, NULL, (int fd, const struct iovec* parts, int count), (fd, parts, count))
WRAP(ssize_t, pwritev, "pwritev", fd, NULL, (int fd, const struct iovec* parts, int count, off_t at), (fd, parts, count, at))
WRAP(ssize_t, read, "read", fd, NULL, (int fd, void* data, size_t size), (fd, data, size))
WRAP(ssize_t, pread, "pread", fd, NULL, (int fd, void* data, size_t size, off_t at), (fd, data, size, at))
WRAP(ssize_t, pread64, "pread", fd, NULL, (int fd, void* data, size_t size, off64_t at), (fd, data, size, at))
WRAP(int, fsync, "fsync", fd, NULL, (int fd), (fd))
WRAP(int, fdatasync, "fdatasync", fd, NULL, (int fd), (fd))
WRAP(int, ftruncate, "ftruncate", fd, NULL, (int fd, off_t size), (fd, size))
WRAP(int, ftruncate64, "ftruncate", fd, NULL, (int fd, off64_t size), (fd, size))
WRAP(int, fallocate, "fallocate", fd, NULL, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
WRAP(int, fallocate64, "fallocate", fd, NULL, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
WRAP(int, rename, "rename", -1, to, (const char* from, const char* to), (from, to))
WRAP(int, renameat, "rename", b, to, (int a, const char* from, int b, const char* to), (a, from, b, to))
WRAP(int, link, "link", -1, to, (const char* from, const char* to), (from, to))
WRAP(int, linkat, "link", b, to, (int a, const char* from, int b, const char* to, int flags), (a, from, b, to, flags))
WRAP(int, unlink, "unlink", -1, path, (const char* path), (path))
WRAP(int, unlinkat, "unlink", folder, path, (int folder, const char* path, int flags), (folder, path, flags))
WRAP(int, rmdir, "rmdir", -1, path, (const char* path), (path))
WRAP(int, mkdir, "mkdir", -1, path, (const char* path, mode_t mode), (path, mode))
WRAP(void*, mmap, "mmap", fd, NULL, (void* at, size_t size, int protect, int flags, int fd, off_t from), (at, size, protect, flags, fd, from))
WRAP(void*, mmap64, "mmap", fd, NULL, (void* at, size_t size, int protect, int flags, int fd, off64_t from), (at, size, protect, flags, fd, from))

static mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

#define WRAP_OPEN(name, folder_, parameters, arguments) \
  int name parameters {                                 \
    va_list rest;                                       \
    va_start(rest, flags);                              \
    const mode_t mode = mode_of(flags, rest);           \
    va_end(rest);                                       \
    static __typeof__(&name) real;                      \
    if (real == NULL) real = REAL(name);                \
    const int what = verdict("open", folder_, path);         \
    if (what == 1) return -1;                           \
    const int result = real arguments;                  \
    if (what == 2) die();                               \
    return result;                                      \
  }

WRAP_OPEN(open, -1, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, -1, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))
WRAP_OPEN(openat64, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))
