/* Preloaded into a test's process: the disk below one directory, failing as a plan says.
 *
 * TURNWHEEL_DISK is the directory, TURNWHEEL_DISK_PLAN a file outside of it. The plan is empty while the disk works, else
 * "write ERRNO BYTES", "sync ERRNO 0" or "read ERRNO 0". Writes put BYTES more bytes down and then fail; as on a real disk,
 * the write that does not fit any more is a short one. A sync that fails leaves what was written in the files. Each failure
 * adds a byte to the file that is named like the plan, with ".failures" behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char seen[64];
static size_t room;

static int is_ours(int fd) {
    char link[64], path[4096];
    const char *directory = getenv("TURNWHEEL_DISK");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = directory == NULL ? -1 : readlink(link, path, sizeof path - 1);
    return len > 0 && strncmp(path, directory, strlen(directory)) == 0;
}

/* What the disk does to an operation on `size` bytes: how many of them it still carries out, or -1 with errno set. The
 * plan is read by system calls, since the functions of the C library lead back here. */
static ssize_t carries_out(const char *operation, int fd, size_t size) {
    char plan[64] = {0}, planned[16] = "", path[4096];
    int number = 0, kept = errno;
    size_t bytes = 0;
    if (!is_ours(fd)) {
        errno = kept;
        return (ssize_t)size;
    }
    int file = (int)syscall(SYS_openat, AT_FDCWD, getenv("TURNWHEEL_DISK_PLAN"), O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)!syscall(SYS_read, file, plan, sizeof plan - 1);
        syscall(SYS_close, file);
    }
    sscanf(plan, "%15s %d %zu", planned, &number, &bytes);
    errno = kept;
    pthread_mutex_lock(&lock);
    if (strcmp(plan, seen) != 0) {
        strcpy(seen, plan);
        room = bytes;
    }
    int fails = strcmp(planned, operation) == 0;
    size_t done = !fails ? size : size < room ? size : room;
    room -= fails ? done : 0;
    pthread_mutex_unlock(&lock);
    if (!fails || done > 0) {
        return (ssize_t)done;
    }
    snprintf(path, sizeof path, "%s.failures", getenv("TURNWHEEL_DISK_PLAN"));
    file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)!syscall(SYS_write, file, "x", 1);
    syscall(SYS_close, file);
    errno = number;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define MOVES(name, operation, buffer_type, further_parameters, further)                                                  \
    ssize_t name(int fd, buffer_type buffer, size_t size further_parameters) {                                             \
        ssize_t done = carries_out(operation, fd, size);                                                                  \
        return done < 0 ? -1 : REAL(name)(fd, buffer, (size_t)done further);                                              \
    }
#define NOTHING
#define COMMA ,

MOVES(write, "write", const void *, NOTHING, NOTHING)
MOVES(pwrite, "write", const void *, COMMA off_t at, COMMA at)
MOVES(pwrite64, "write", const void *, COMMA off64_t at, COMMA at)
MOVES(read, "read", void *, NOTHING, NOTHING)
MOVES(pread, "read", void *, COMMA off_t at, COMMA at)
MOVES(pread64, "read", void *, COMMA off64_t at, COMMA at)

#define SYNCS(name)                                                                                                       \
    int name(int fd) {                                                                                                    \
        return carries_out("sync", fd, 0) < 0 ? -1 : REAL(name)(fd);                                                      \
    }

SYNCS(fsync)
SYNCS(fdatasync)
