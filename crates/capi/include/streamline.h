/* Rings as pipes. Generated from crates/capi/src; `UPDATE=1 cargo test -p capi header` writes it again. */

#ifndef STREAMLINE_H
#define STREAMLINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/*
 Open for reading.
 */
#define SL_READ 1

/*
 Open for writing.
 */
#define SL_WRITE 2

/*
 Calls that would wait return -EAGAIN.
 */
#define SL_NONBLOCK 4

/*
 Begin at the oldest block in the ring; for readers that hold nothing.
 */
#define SL_OLDEST 8

/*
 When this reader is a whole ring behind, the newest block is dropped. Without this, SL_OVERWRITE and SL_SHARED the
 writer waits.
 */
#define SL_DROP_NEWEST 16

/*
 When this reader is a whole ring behind, it is overtaken.
 */
#define SL_OVERWRITE 32

/*
 As SL_OVERWRITE; readers that were overtaken stay together.
 */
#define SL_SHARED 64

/*
 Write also while there is no reader; those blocks are lost.
 */
#define SL_UNREAD 128

/*
 Wake sleeping readers for every block. Without it they wake for every 32 blocks, by `sl_flush`, and within their own
 bound.
 */
#define SL_EVERY 256

/*
 For `sl_window`: use all of the ring.
 */
#define SL_WINDOW_WHOLE 0

/*
 For `sl_window`: use as little of the ring as its readers can keep up with.
 */
#define SL_WINDOW_AUTO UINT64_MAX

/*
 One end of a ring.
 */
typedef struct sl_pipe sl_pipe;

/*
 A block that `sl_peek` shows.
 */
typedef struct {
  /*
   The bytes, in place. NULL if they may not be read; then `refused` says why.
   */
  const void *bytes;
  /*
   The number of bytes.
   */
  uint64_t len;
  /*
   When the block was seen: nanoseconds since 1970 UTC.
   */
  uint64_t time;
  /*
   Its class.
   */
  uint32_t block_class;
  /*
   Its length on the wire.
   */
  uint32_t wire;
  /*
   0, or the negative errno from its ring's keeper.
   */
  int32_t refused;
  /*
   Not 0: the bytes are in another ring than the one that is read.
   */
  int32_t elsewhere;
} sl_block;

/*
 The state of an end.
 */
typedef struct {
  /*
   Bytes of the longest block; for a stream, bytes of the ring.
   */
  uint64_t block_bytes;
  /*
   Blocks read or written.
   */
  uint64_t blocks;
  /*
   Bytes read or written.
   */
  uint64_t bytes;
  /*
   Blocks (bytes, for a stream) that this reader lost by being overtaken, or that this writer dropped.
   */
  uint64_t lost;
  /*
   Blocks forwarded to this writer by their descriptor alone.
   */
  uint64_t forwarded;
  /*
   Blocks forwarded to this writer whose bytes had to be copied.
   */
  uint64_t copied;
  /*
   Blocks that this reader forwarded and that other readers have not read yet.
   */
  uint64_t outstanding;
  /*
   Rings that this reader has opened because a block was in them.
   */
  uint64_t faults;
  /*
   Readers of this writer's ring.
   */
  uint64_t readers;
  /*
   Bytes of payload that this writer uses of a ring of descriptors; 0 for other rings, which use all.
   */
  uint64_t window;
  /*
   'c', 'p', 'v' or 'd'.
   */
  char kind;
} sl_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Opens the ring with this name, or with its keeper's socket at this path. 0, or a negative errno.

 # Safety

 `name` is a text that ends with a zero byte; `pipe` has room for the handle.
 */
int32_t sl_open(const char *name, uint32_t flags, sl_pipe **pipe);

/*
 Reads at most one block or its rest; for a stream, the bytes that are there. Gives the bytes read, 0 at the end, or
 a negative errno.

 # Safety

 `pipe` is from `sl_open`; `buffer` has room for `len` bytes.
 */
int64_t sl_read(sl_pipe *pipe,
                void *buffer,
                uintptr_t len);

/*
 Writes one block. For a stream it writes the bytes that have room, or all if it may wait. Gives the bytes written,
 or a negative errno: -EPIPE when all readers have left (without a signal), -EMSGSIZE for a block that can never fit.

 # Safety

 `pipe` is from `sl_open`; `buffer` has `len` bytes.
 */
int64_t sl_write(sl_pipe *pipe,
                 const void *buffer,
                 uintptr_t len);

/*
 Shows the bytes of the next read in place. 1, 0 at the end, or a negative errno.

 # Safety

 `pipe` is from `sl_open`; `block` has room for the answer.
 */
int32_t sl_peek(sl_pipe *pipe, sl_block *block);

/*
 Takes the first `len` bytes of the block peeked last; SIZE_MAX: all. 0, or a negative errno: -ESTALE if they were
 overwritten meanwhile.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_release(sl_pipe *pipe,
                   uintptr_t len);

/*
 Gives the first `len` bytes (SIZE_MAX: all) of the block peeked last to another ring, and takes them. For a ring of
 descriptors no byte is copied. Gives the bytes, or a negative errno. After an error other than -ESTALE the block is
 not taken.

 # Safety

 Both are from `sl_open`.
 */
int64_t sl_forward(sl_pipe *from,
                   sl_pipe *to,
                   uintptr_t len);

/*
 As `sl_forward`, to `count` rings. After -EAGAIN, call it again with the same rings in the same order: it goes on at
 the point where it stopped.

 # Safety

 All are from `sl_open`; all of `to` are different; `to` has `count` elements.
 */
int64_t sl_tee(sl_pipe *from,
               sl_pipe *const *to,
               uintptr_t count,
               uintptr_t len);

/*
 A file descriptor to poll. For a reader: readable (POLLIN) when there are bytes to read, or at the end. For a
 writer: writable (POLLOUT) when a block of 4,096 bytes (or the longest block, if shorter) can be written without
 waiting, or when a write fails at once; its POLLIN has no meaning. It belongs to the handle: do not read, write or
 close it. Gives the descriptor, or a negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_poll_fd(sl_pipe *pipe);

/*
 The file descriptor of a writer, as `sl_poll_fd` gives it. From here on it is writable when there is room for `len`
 bytes. A length that can never fit counts as writable, because the write fails at once.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_poll_room(sl_pipe *pipe,
                     uintptr_t len);

/*
 Wakes readers that sleep until a batch is complete. 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_flush(sl_pipe *pipe);

/*
 Goes on in a ring of at least `bytes` bytes and `slots` slots (0: as many as suit). 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_resize(sl_pipe *pipe,
                  uint64_t bytes,
                  uint64_t slots);

/*
 Uses only `bytes` bytes of a ring of descriptors from here on (rounded up to a power of two), so that written bytes
 stay in the processor's cache. SL_WINDOW_WHOLE uses all of it; SL_WINDOW_AUTO finds out how many bytes are enough.
 The setting also holds for a ring of another size. 0, or a negative errno: -EINVAL for rings of other kinds.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_window(sl_pipe *pipe,
                  uint64_t bytes);

/*
 Waits until all forwarded blocks are read, so that closing overwrites no unread block. 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_drain(sl_pipe *pipe);

/*
 Gives the state of an end. 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`; `stat` has room for the answer.
 */
int32_t sl_stat(sl_pipe *pipe, sl_stats *stat);

/*
 Closes an end; a writer's ring ends properly. The handle is gone, whatever the result. 0, or a negative errno.

 # Safety

 `pipe` is null, or from `sl_open` and not closed yet.
 */
int32_t sl_close(sl_pipe *pipe);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STREAMLINE_H */
