// A library to preload: calls of libc that are about a path of our choice fail at the k-th time, do half of
// what they were asked to do, or the process is killed before, in the middle of or right behind one of them.
// Also keeps a record of all that changes files (FAILING_CALLS_TRACE), for trace.py to replay.
// failing_calls.py builds and arms it.
//
// Calls are counted over all threads. A file descriptor's path is what /proc/self/fd says. Up to kRules rules
// hold one after another: a rule begins to count when the one before it has struck, so that the second is a
// fault in the recovery of the first.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kOff, kCount, kFail, kFailFrom, kKillBefore, kKillBehind, kTorn, kShort };
enum { kRules = 4 };
enum { kGo, kFailNow, kDieBehind, kHalf, kHalfAndDie };  // verdicts

struct rule {
  char calls[256];          // ",write,fsync," or ",*,"
  char pattern[PATH_MAX];  // as fnmatch takes it, "*" crosses slashes
  long at;                 // from 0
  int what, error;
  atomic_long seen;
  atomic_int struck;
};

static struct rule g_rules[kRules];
static atomic_int g_count;         // rules that hold
static char g_last[2 * PATH_MAX];  // the last call that counted, and its path
static int g_log = -1;             // where the names of counted calls go
static int g_trace = -1;
static char g_traced[PATH_MAX];  // the pattern of paths whose changes are recorded

static void add_rule(const char* calls, const char* pattern, long at, int what, int error) {
  const int number = atomic_load(&g_count);
  if (number == kRules) return;
  struct rule* rule = &g_rules[number];
  snprintf(rule->calls, sizeof rule->calls, ",%s,", calls);
  snprintf(rule->pattern, sizeof rule->pattern, "%s", pattern);
  rule->at = at;
  rule->what = what;
  rule->error = error;
  atomic_store(&rule->seen, 0);
  atomic_store(&rule->struck, 0);
  atomic_store(&g_count, number + 1);
}

void failing_calls_disarm(void) { atomic_store(&g_count, 0); }

void failing_calls_also(const char* calls, const char* pattern, long at, int what, int error) {
  add_rule(calls, pattern, at, what, error);
}

long failing_calls_seen(void) { return atomic_load(&g_rules[0].seen); }
int failing_calls_struck(void) {
  int struck = 0;
  for (int i = 0; i < atomic_load(&g_count); ++i) struck += atomic_load(&g_rules[i].struck) != 0;
  return struck;
}
const char* failing_calls_last(void) { return g_last; }

// From now on the names of the calls that a rule counts, a line each.
void failing_calls_log(const char* file) {
  if (g_log >= 0) syscall(SYS_close, g_log);
  g_log = file == NULL ? -1
                       : (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

void failing_calls_trace(const char* file, const char* pattern) {
  if (g_trace >= 0) syscall(SYS_close, g_trace);
  g_trace = -1;
  if (file == NULL) return;
  snprintf(g_traced, sizeof g_traced, "%s", pattern);
  g_trace = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

__attribute__((constructor)) static void arm_by_environment(void) {
  const char* text = getenv("FAILING_CALLS");  // calls|pattern|at|what|errno, further rules behind newlines
  while (text != NULL && *text != 0) {
    char calls[256], pattern[PATH_MAX];
    long at;
    int what, error;
    if (sscanf(text, "%255[^|]|%4095[^|]|%ld|%d|%d", calls, pattern, &at, &what, &error) == 5)
      add_rule(calls, pattern, at, what, error);
    text = strchr(text, '\n');
    if (text != NULL) ++text;
  }
  const char* trace = getenv("FAILING_CALLS_TRACE");  // file|pattern
  char file[PATH_MAX], pattern[PATH_MAX];
  if (trace != NULL && sscanf(trace, "%4095[^|]|%4095[^|]", file, pattern) == 2)
    failing_calls_trace(file, pattern);
}

// The path of a call: of a descriptor, or a path below one.
static void path_of(int descriptor, const char* path, char found[PATH_MAX]) {
  size_t used = 0;
  found[0] = 0;
  if (path == NULL || path[0] != '/') {
    char link[64];
    if (descriptor >= 0 || path == NULL)
      snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    else
      snprintf(link, sizeof link, "/proc/self/cwd");
    const long size = syscall(SYS_readlinkat, AT_FDCWD, link, found, PATH_MAX - 1);
    used = size > 0 ? (size_t)size : 0;
    found[used] = 0;
  }
  if (path != NULL) snprintf(found + used, PATH_MAX - used, "%s%s", used != 0 ? "/" : "", path);
}

static int names(const struct rule* rule, const char* call) {
  char name[64];
  snprintf(name, sizeof name, ",%s,", call);
  return strcmp(rule->calls, ",*,") == 0 || strstr(rule->calls, name) != NULL;
}

static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); }

static int struck(struct rule* rule) {
  atomic_store(&rule->struck, 1);
  switch (rule->what) {
    case kKillBefore: die(); return kGo;
    case kKillBehind: return kDieBehind;
    case kTorn: return kHalfAndDie;
    case kShort: return kHalf;
    default: errno = rule->error; return kFailNow;
  }
}

static int verdict(const char* call, int descriptor, const char* path) {
  const int count = atomic_load(&g_count), kept = errno;
  char found[PATH_MAX] = "";
  int result = kGo;
  for (int i = 0; i < count; ++i) {
    struct rule* rule = &g_rules[i];
    const int began = i == 0 || atomic_load(&g_rules[i - 1].struck) != 0;
    const int ended = atomic_load(&rule->struck) != 0 && rule->what != kFailFrom;
    if (rule->what == kOff || !began || (ended && i + 1 < count)) continue;
    if (!names(rule, call)) continue;
    if (found[0] == 0) path_of(descriptor, path, found);
    if (fnmatch(rule->pattern, found, 0) != 0) continue;
    const long number = atomic_fetch_add(&rule->seen, 1);
    snprintf(g_last, sizeof g_last, "%s %.4000s", call, found);
    if (rule->what == kCount) {
      char line[64];
      const int size = snprintf(line, sizeof line, "%s\n", call);
      if (g_log >= 0 && syscall(SYS_write, g_log, line, size) != size) abort();
      continue;
    }
    if (number != rule->at && !(rule->what == kFailFrom && number > rule->at)) continue;
    errno = kept;
    result = struck(rule);
    if (result == kFailNow) return result;
    break;
  }
  errno = kept;
  return result;
}

// ---- the record of changes ---------------------------------------------------------------------

struct entry {  // then the two paths and the data
  uint32_t bytes, kind;  // of all of it; as in trace.py
  int64_t device, inode, offset, length;
  uint32_t path, other, data, pid;
};
enum { kData = 1, kSize, kSync, kCreate, kLink, kRename, kUnlink, kMkdir, kRmdir, kUnnamed, kSyncAll };

static int traced(const char* path) { return g_trace >= 0 && fnmatch(g_traced, path, 0) == 0; }

static void record(uint32_t kind, const struct stat* file, const char* path, const char* other, int64_t offset,
                   int64_t length, const struct iovec* parts, int count) {
  struct entry entry = {sizeof entry, kind, 0, 0, offset, length, (uint32_t)strlen(path),
                        other != NULL ? (uint32_t)strlen(other) : 0, 0, (uint32_t)getpid()};
  if (file != NULL) entry.device = (int64_t)file->st_dev, entry.inode = (int64_t)file->st_ino;
  char* memory = malloc(sizeof entry + entry.path + entry.other + (size_t)(length > 0 && parts ? length : 0));
  if (memory == NULL) abort();
  char* at = memory + sizeof entry;
  memcpy(at, path, entry.path), at += entry.path;
  if (other != NULL) memcpy(at, other, entry.other), at += entry.other;
  for (int64_t i = 0, left = length; parts != NULL && i < count && left > 0; ++i) {
    const size_t size = parts[i].iov_len < (size_t)left ? parts[i].iov_len : (size_t)left;
    memcpy(at, parts[i].iov_base, size), at += size, left -= (int64_t)size;
    entry.data += (uint32_t)size;
  }
  entry.bytes = (uint32_t)(at - memory);
  memcpy(memory, &entry, sizeof entry);
  if (syscall(SYS_write, g_trace, memory, entry.bytes) != (long)entry.bytes) abort();
  free(memory);
}

static void record_data(int fd, int64_t offset, int64_t length, const struct iovec* parts, int count) {
  if (g_trace < 0 || length <= 0) return;
  const int kept = errno;
  char path[PATH_MAX];
  struct stat file;
  path_of(fd, NULL, path);
  if (traced(path) && fstat(fd, &file) == 0 && S_ISREG(file.st_mode)) {
    if (offset < 0) {  // behind a write at the descriptor's place
      const int64_t end = lseek(fd, 0, SEEK_CUR);
      offset = end - length;
    }
    record(kData, &file, path, NULL, offset, length, parts, count);
  }
  errno = kept;
}

// What of a file has been copied into it by the kernel: read back.
static void record_copied(int fd, int64_t offset, int64_t length) {
  if (g_trace < 0 || length <= 0) return;
  char path[PATH_MAX];
  path_of(fd, NULL, path);
  if (!traced(path)) return;
  if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - length;
  char* memory = malloc((size_t)length);
  const int reader = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (memory == NULL || reader < 0 || syscall(SYS_pread64, reader, memory, length, offset) != length) abort();
  syscall(SYS_close, reader);
  const struct iovec part = {memory, (size_t)length};
  record_data(fd, offset, length, &part, 1);
  free(memory);
}

static void record_file(uint32_t kind, int fd, int64_t offset, int64_t length) {
  if (g_trace < 0) return;
  const int kept = errno;
  char path[PATH_MAX];
  struct stat file;
  path_of(fd, NULL, path);
  if (traced(path) && fstat(fd, &file) == 0) record(kind, &file, path, NULL, offset, length, NULL, 0);
  errno = kept;
}

static void record_name(uint32_t kind, int folder, const char* name, int other_folder, const char* other) {
  if (g_trace < 0) return;
  const int kept = errno;
  char path[PATH_MAX], second[PATH_MAX] = "";
  struct stat file = {0};
  path_of(folder, name, path);
  if (other != NULL) path_of(other_folder, other, second);
  if (traced(path) || (other != NULL && traced(second))) {
    const char* there = other != NULL ? second : path;
    if (kind != kUnlink && kind != kRmdir) lstat(there, &file);
    record(kind, &file, path, other != NULL ? second : NULL, 0, 0, NULL, 0);
  }
  errno = kept;
}

// ---- the calls ---------------------------------------------------------------------------------

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// A call that is made or not; `done` is done where it succeeded.
#define WRAP(type, name, call, descriptor, path, parameters, arguments, done) \
  type name parameters {                                                      \
    static __typeof__(&name) real;                                            \
    if (real == NULL) real = REAL(name);                                      \
    const int what = verdict(call, descriptor, path);                         \
    if (what == kFailNow) return (type) - 1;                                  \
    type result = real arguments;                                             \
    if (result != (type) - 1) { done; }                                       \
    if (what == kDieBehind || what == kHalfAndDie) die();                     \
    return result;                                                            \
  }

// One that moves `size` bytes, or half of them.
#define WRAP_PART(name, call, parameters, arguments, done)           \
  ssize_t name parameters {                                          \
    static __typeof__(&name) real;                                   \
    if (real == NULL) real = REAL(name);                             \
    const int what = verdict(call, fd, NULL);                        \
    if (what == kFailNow) return -1;                                 \
    if ((what == kHalf || what == kHalfAndDie) && size > 1) size /= 2; \
    const ssize_t result = real arguments;                           \
    if (result > 0) { done; }                                        \
    if (what == kDieBehind || what == kHalfAndDie) die();            \
    return result;                                                   \
  }

#define ONE_PART ((struct iovec){(void*)data, (size_t)result})

WRAP_PART(write, "write", (int fd, const void* data, size_t size), (fd, data, size),
          const struct iovec part = ONE_PART; record_data(fd, -1, result, &part, 1))
WRAP_PART(pwrite, "pwrite", (int fd, const void* data, size_t size, off_t at), (fd, data, size, at),
          const struct iovec part = ONE_PART; record_data(fd, at, result, &part, 1))
WRAP_PART(pwrite64, "pwrite", (int fd, const void* data, size_t size, off64_t at), (fd, data, size, at),
          const struct iovec part = ONE_PART; record_data(fd, at, result, &part, 1))
WRAP_PART(read, "read", (int fd, void* data, size_t size), (fd, data, size), )
WRAP_PART(pread, "pread", (int fd, void* data, size_t size, off_t at), (fd, data, size, at), )
WRAP_PART(pread64, "pread", (int fd, void* data, size_t size, off64_t at), (fd, data, size, at), )

// Vectors: half of them is the first half of the parts, or of the only one.
#define WRAP_PARTS(name, call, parameters, arguments, offset, written)                     \
  ssize_t name parameters {                                                              \
    static __typeof__(&name) real;                                                       \
    if (real == NULL) real = REAL(name);                                                 \
    const int what = verdict(call, fd, NULL);                                            \
    if (what == kFailNow) return -1;                                                     \
    struct iovec half;                                                                   \
    if (what == kHalf || what == kHalfAndDie) {                                          \
      if (count == 1 && parts[0].iov_len > 1) {                                          \
        half = (struct iovec){parts[0].iov_base, parts[0].iov_len / 2};                  \
        parts = &half;                                                                   \
      }                                                                                  \
      count = count > 1 ? count / 2 : count;                                             \
    }                                                                                    \
    const ssize_t result = real arguments;                                               \
    if (written && result > 0) record_data(fd, offset, result, parts, count);            \
    if (what == kDieBehind || what == kHalfAndDie) die();                                \
    return result;                                                                       \
  }

WRAP_PARTS(writev, "writev", (int fd, const struct iovec* parts, int count), (fd, parts, count), -1, 1)
WRAP_PARTS(pwritev, "pwritev", (int fd, const struct iovec* parts, int count, off_t at), (fd, parts, count, at), at, 1)
WRAP_PARTS(pwritev64, "pwritev", (int fd, const struct iovec* parts, int count, off64_t at), (fd, parts, count, at), at, 1)
WRAP_PARTS(readv, "readv", (int fd, const struct iovec* parts, int count), (fd, parts, count), -1, 0)
WRAP_PARTS(preadv, "preadv", (int fd, const struct iovec* parts, int count, off_t at), (fd, parts, count, at), at, 0)
WRAP_PARTS(preadv64, "preadv", (int fd, const struct iovec* parts, int count, off64_t at), (fd, parts, count, at), at, 0)

WRAP_PART(sendfile, "sendfile", (int fd, int from, off_t* at, size_t size), (fd, from, at, size),
          record_copied(fd, -1, result))
WRAP_PART(sendfile64, "sendfile", (int fd, int from, off64_t* at, size_t size), (fd, from, at, size),
          record_copied(fd, -1, result))
WRAP_PART(copy_file_range, "copy_file_range",
          (int from, off64_t* from_at, int fd, off64_t* at, size_t size, unsigned flags),
          (from, from_at, fd, at, size, flags), record_copied(fd, at != NULL ? *at - result : -1, result))

WRAP(int, fsync, "fsync", fd, NULL, (int fd), (fd), record_file(kSync, fd, 0, 0))
WRAP(int, fdatasync, "fsync", fd, NULL, (int fd), (fd), record_file(kSync, fd, 0, 0))
WRAP(int, syncfs, "fsync", fd, NULL, (int fd), (fd), record_file(kSyncAll, fd, 0, 0))
WRAP(int, ftruncate, "ftruncate", fd, NULL, (int fd, off_t size), (fd, size), record_file(kSize, fd, 0, size))
WRAP(int, ftruncate64, "ftruncate", fd, NULL, (int fd, off64_t size), (fd, size), record_file(kSize, fd, 0, size))
static void record_room(int fd, int mode, int64_t end) {
  struct stat file;
  if (g_trace >= 0 && mode == 0 && fstat(fd, &file) == 0 && file.st_size <= end) record_file(kSize, fd, 0, end);
}
WRAP(int, fallocate, "fallocate", fd, NULL, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size),
     record_room(fd, mode, at + size))
WRAP(int, fallocate64, "fallocate", fd, NULL, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size),
     record_room(fd, mode, at + size))
WRAP(int, rename, "rename", -1, to, (const char* from, const char* to), (from, to),
     record_name(kRename, -1, from, -1, to))
WRAP(int, renameat, "rename", b, to, (int a, const char* from, int b, const char* to), (a, from, b, to),
     record_name(kRename, a, from, b, to))
WRAP(int, link, "link", -1, to, (const char* from, const char* to), (from, to), record_name(kLink, -1, from, -1, to))
WRAP(int, linkat, "link", b, to, (int a, const char* from, int b, const char* to, int flags), (a, from, b, to, flags),
     record_name(kLink, a, from, b, to))
WRAP(int, symlink, "symlink", -1, to, (const char* from, const char* to), (from, to), )
WRAP(int, unlink, "unlink", -1, path, (const char* path), (path), record_name(kUnlink, -1, path, -1, NULL))
WRAP(int, unlinkat, "unlink", folder, path, (int folder, const char* path, int flags), (folder, path, flags),
     record_name((flags & AT_REMOVEDIR) != 0 ? kRmdir : kUnlink, folder, path, -1, NULL))
WRAP(int, rmdir, "rmdir", -1, path, (const char* path), (path), record_name(kRmdir, -1, path, -1, NULL))
WRAP(int, mkdir, "mkdir", -1, path, (const char* path, mode_t mode), (path, mode),
     record_name(kMkdir, -1, path, -1, NULL))
WRAP(int, mkdirat, "mkdir", folder, path, (int folder, const char* path, mode_t mode), (folder, path, mode),
     record_name(kMkdir, folder, path, -1, NULL))
WRAP(void*, mmap, "mmap", fd, NULL, (void* at, size_t size, int protect, int flags, int fd, off_t from),
     (at, size, protect, flags, fd, from), )
WRAP(void*, mmap64, "mmap", fd, NULL, (void* at, size_t size, int protect, int flags, int fd, off64_t from),
     (at, size, protect, flags, fd, from), )
WRAP(int, flock, "flock", fd, NULL, (int fd, int operation), (fd, operation), )
WRAP(int, fstat, "fstat", fd, NULL, (int fd, struct stat* found), (fd, found), )
WRAP(int, fstat64, "fstat", fd, NULL, (int fd, struct stat64* found), (fd, found), )
WRAP(int, stat, "stat", -1, path, (const char* path, struct stat* found), (path, found), )
WRAP(int, stat64, "stat", -1, path, (const char* path, struct stat64* found), (path, found), )
WRAP(int, fstatat, "stat", folder, path, (int folder, const char* path, struct stat* found, int flags),
     (folder, path, found, flags), )
WRAP(int, fstatat64, "stat", folder, path, (int folder, const char* path, struct stat64* found, int flags),
     (folder, path, found, flags), )
WRAP(int, statvfs, "statvfs", -1, path, (const char* path, struct statvfs* found), (path, found), )
WRAP(int, statvfs64, "statvfs", -1, path, (const char* path, struct statvfs64* found), (path, found), )
WRAP(int, fstatvfs, "statvfs", fd, NULL, (int fd, struct statvfs* found), (fd, found), )
WRAP(int, fstatvfs64, "statvfs", fd, NULL, (int fd, struct statvfs64* found), (fd, found), )

// These return errno, or NULL.
#define WRAP_ALLOCATE(name, parameters)                         \
  int name parameters {                                         \
    static __typeof__(&name) real;                              \
    if (real == NULL) real = REAL(name);                        \
    const int kept = errno, what = verdict("fallocate", fd, NULL); \
    if (what == kFailNow) {                                     \
      const int error = errno;                                  \
      errno = kept;                                             \
      return error;                                             \
    }                                                           \
    const int result = real(fd, at, size);                      \
    if (result == 0) record_room(fd, 0, at + size);             \
    if (what == kDieBehind || what == kHalfAndDie) die();       \
    return result;                                              \
  }
WRAP_ALLOCATE(posix_fallocate, (int fd, off_t at, off_t size))
WRAP_ALLOCATE(posix_fallocate64, (int fd, off64_t at, off64_t size))

DIR* opendir(const char* path) {
  static __typeof__(&opendir) real;
  if (real == NULL) real = REAL(opendir);
  const int what = verdict("opendir", -1, path);
  if (what == kFailNow) return NULL;
  DIR* result = real(path);
  if (what == kDieBehind || what == kHalfAndDie) die();
  return result;
}

static mode_t mode_of(int flags, va_list rest) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

static int is_there(int folder, const char* path) {
  struct stat found;
  char name[PATH_MAX];
  path_of(folder, path, name);
  return syscall(SYS_newfstatat, AT_FDCWD, name, &found, 0) == 0;
}

static void record_opened(int fd, int flags, int there, int folder, const char* path) {
  if (g_trace < 0 || fd < 0) return;
  if ((flags & O_TMPFILE) == O_TMPFILE) {
    record_file(kUnnamed, fd, 0, 0);
  } else if ((flags & O_CREAT) != 0 && !there) {
    record_name(kCreate, folder, path, -1, NULL);
  } else if ((flags & O_TRUNC) != 0) {
    record_file(kSize, fd, 0, 0);
  }
}

#define WRAP_OPEN(name, folder_, parameters, arguments)                     \
  int name parameters {                                                     \
    va_list rest;                                                           \
    va_start(rest, flags);                                                  \
    const mode_t mode = mode_of(flags, rest);                               \
    va_end(rest);                                                           \
    static __typeof__(&name) real;                                          \
    if (real == NULL) real = REAL(name);                                    \
    const int what = verdict("open", folder_, path);                        \
    if (what == kFailNow) return -1;                                        \
    const int kept = errno, there = g_trace >= 0 && is_there(folder_, path); \
    errno = kept;                                                           \
    const int result = real arguments;                                      \
    record_opened(result, flags, there, folder_, path);                     \
    if (what == kDieBehind || what == kHalfAndDie) die();                   \
    return result;                                                          \
  }

WRAP_OPEN(open, -1, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, -1, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))
WRAP_OPEN(openat64, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, mode))

// stdio opens, reads and writes past these names.
FILE* fopen(const char* path, const char* mode) {
  static __typeof__(&fopen) real;
  if (real == NULL) real = REAL(fopen);
  if (verdict("open", -1, path) == kFailNow) return NULL;
  return real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  static __typeof__(&fopen64) real;
  if (real == NULL) real = REAL(fopen64);
  if (verdict("open", -1, path) == kFailNow) return NULL;
  return real(path, mode);
}
