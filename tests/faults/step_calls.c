// A library to preload: each call of libc that is about a path below a folder waits until a scheduler lets it
// go on. cache_scheduler.py builds it, and is the scheduler: it decides which process makes the next call.
//
// A process says what it is about to do ("flock /dev/shm/...", one line in one write) and reads one byte: 'g' to
// go on, 't' to go on after time has passed. It is killed or stopped while it waits for that byte, so between
// any two calls. The line begins with '!' where its last lock was not to be had: it waits for somebody.
//
// A file without a name is nobody else's: what is done to it is no step until it is linked, but that it takes
// memory. No call waits in the kernel: a lock that would have waited is asked for again at each step.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static char g_folder[PATH_MAX];
static size_t g_length;  // of g_folder; 0: nothing is a step
static int g_say = -1, g_hear = -1;
static int g_threads;   // whether those of all threads are steps, or of the first one alone
static int g_linked;    // a file that was made without a name has one now
static int g_refused;   // the last lock was not to be had
static int g_passed;    // how often time has passed

void step_calls_arm(const char* folder, int say, int hear, int threads) {
  g_say = say;
  g_hear = hear;
  g_threads = threads;
  g_linked = g_refused = g_passed = 0;
  snprintf(g_folder, sizeof g_folder, "%s", folder);
  g_length = strlen(folder);
}

int step_calls_passed(void) { return g_passed; }

void step_calls_point(const char* what) {
  char line[PATH_MAX + 64], heard = 0;
  if (g_length == 0) return;
  const int size = snprintf(line, sizeof line, "%s%s\n", g_refused ? "!" : "", what);
  g_refused = 0;
  if (syscall(SYS_write, g_say, line, size) != size || syscall(SYS_read, g_hear, &heard, 1) != 1)
    syscall(SYS_exit_group, 70);
  g_passed += heard == 't';
}

static void step(const char* call, int descriptor, const char* path) {
  char found[PATH_MAX] = "", line[PATH_MAX + 32];
  size_t used = 0;
  if (g_length == 0 || (!g_threads && syscall(SYS_gettid) != getpid())) return;
  const int kept = errno;
  if (path == NULL || path[0] != '/') {
    char link[64];
    snprintf(link, sizeof link, descriptor >= 0 ? "/proc/self/fd/%d" : "/proc/self/cwd", descriptor);
    const long size = syscall(SYS_readlinkat, AT_FDCWD, link, found, sizeof found - 1);
    used = size > 0 ? (size_t)size : 0;
    found[used] = 0;
  }
  if (path != NULL) snprintf(found + used, sizeof found - used, "%s%s", used != 0 ? "/" : "", path);
  errno = kept;
  if (strncmp(found, g_folder, g_length) != 0) return;
  const int unnamed = strstr(found, " (deleted)") != NULL;
  if (unnamed && !g_linked && strcmp(call, "fallocate") != 0) return;
  const char* name = strrchr(found, '/');
  snprintf(line, sizeof line, "%s %.200s", call, unnamed ? "(unnamed)" : name + 1);
  step_calls_point(line);
  errno = kept;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRAP(type, name, call, descriptor, path, parameters, arguments) \
  type name parameters {                                                \
    static __typeof__(&name) real;                                      \
    if (real == NULL) real = REAL(name);                                \
    step(call, descriptor, path);                                       \
    return real arguments;                                              \
  }

WRAP(int, close, "close", fd, NULL, (int fd), (fd))
WRAP(ssize_t, pwrite, "pwrite", fd, NULL, (int fd, const void* data, size_t size, off_t at), (fd, data, size, at))
WRAP(ssize_t, pwrite64, "pwrite", fd, NULL, (int fd, const void* data, size_t size, off64_t at), (fd, data, size, at))
WRAP(int, ftruncate, "ftruncate", fd, NULL, (int fd, off_t size), (fd, size))
WRAP(int, ftruncate64, "ftruncate", fd, NULL, (int fd, off64_t size), (fd, size))
WRAP(int, posix_fallocate, "fallocate", fd, NULL, (int fd, off_t at, off_t size), (fd, at, size))
WRAP(int, posix_fallocate64, "fallocate", fd, NULL, (int fd, off64_t at, off64_t size), (fd, at, size))
WRAP(int, unlink, "unlink", -1, path, (const char* path), (path))
WRAP(int, unlinkat, "unlink", folder, path, (int folder, const char* path, int flags), (folder, path, flags))
WRAP(int, rename, "rename", -1, to, (const char* from, const char* to), (from, to))
WRAP(int, mkdir, "mkdir", -1, path, (const char* path, mode_t mode), (path, mode))
WRAP(int, stat, "stat", -1, path, (const char* path, struct stat* found), (path, found))
WRAP(int, lstat, "stat", -1, path, (const char* path, struct stat* found), (path, found))
WRAP(int, fstatat, "stat", folder, path, (int folder, const char* path, struct stat* found, int flags), (folder, path, found, flags))
WRAP(int, stat64, "stat", -1, path, (const char* path, struct stat64* found), (path, found))
WRAP(int, lstat64, "stat", -1, path, (const char* path, struct stat64* found), (path, found))
WRAP(int, fstatat64, "stat", folder, path, (int folder, const char* path, struct stat64* found, int flags), (folder, path, found, flags))
WRAP(int, statvfs, "statvfs", -1, path, (const char* path, struct statvfs* found), (path, found))
WRAP(int, fstatvfs, "statvfs", fd, NULL, (int fd, struct statvfs* found), (fd, found))
WRAP(int, statvfs64, "statvfs", -1, path, (const char* path, struct statvfs64* found), (path, found))
WRAP(int, fstatvfs64, "statvfs", fd, NULL, (int fd, struct statvfs64* found), (fd, found))
WRAP(DIR*, fdopendir, "listdir", fd, NULL, (int fd), (fd))

int linkat(int from, const char* old, int to, const char* path, int flags) {
  static __typeof__(&linkat) real;
  if (real == NULL) real = REAL(linkat);
  step("link", to, path);
  const int result = real(from, old, to, path, flags);
  if (result == 0) g_linked = 1;
  return result;
}

int flock(int fd, int kind) {
  static __typeof__(&flock) real;
  if (real == NULL) real = REAL(flock);
  for (;;) {
    step("flock", fd, NULL);
    const int result = real(fd, g_length != 0 ? kind | LOCK_NB : kind);
    if (result == 0 || g_length == 0 || errno != EWOULDBLOCK) return result;
    g_refused = 1;
    if ((kind & LOCK_NB) != 0) return result;
  }
}

#define WRAP_FCNTL(name)                                                     \
  int name(int fd, int call, ...) {                                          \
    va_list rest;                                                            \
    va_start(rest, call);                                                    \
    void* const argument = va_arg(rest, void*);                              \
    va_end(rest);                                                            \
    static __typeof__(&name) real;                                           \
    if (real == NULL) real = REAL(name);                                     \
    const int locks = call == F_OFD_SETLK;                                   \
    if (locks) step("claim", fd, NULL);                                      \
    const int result = real(fd, call, argument);                             \
    if (locks && result != 0 && (errno == EAGAIN || errno == EACCES)) g_refused = 1; \
    return result;                                                           \
  }
WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

#define WRAP_OPEN(name, folder_, parameters, arguments)                                      \
  int name parameters {                                                                      \
    va_list rest;                                                                            \
    va_start(rest, flags);                                                                   \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;     \
    va_end(rest);                                                                            \
    static __typeof__(&name) real;                                                           \
    if (real == NULL) real = REAL(name);                                                     \
    if ((flags & O_TMPFILE) != O_TMPFILE) step("open", folder_, path);                       \
    return real arguments;                                                                   \
  }
WRAP_OPEN(open, -1, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, -1, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))
WRAP_OPEN(openat64, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))
