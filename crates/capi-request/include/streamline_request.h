/* Requests inside a program. Generated from crates/capi-request/src; `UPDATE=1 cargo test -p capi-request header` writes it again. */

#ifndef STREAMLINE_REQUEST_H
#define STREAMLINE_REQUEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/*
 Of a block: a frame of the link layer.
 */
#define SL_TYPE_FRAME 1

/*
 Of a block: a network-layer packet.
 */
#define SL_TYPE_PACKET 2

/*
 Of a block: a piece of a byte stream.
 */
#define SL_TYPE_BYTES 3

/*
 Of a block: a piece of a message.
 */
#define SL_TYPE_MESSAGE 4

/*
 Of a block: a record.
 */
#define SL_TYPE_RECORD 5

/*
 Of a block: the first of its stream or message.
 */
#define SL_BLOCK_FIRST 1

/*
 Of a block: the last of its stream or message.
 */
#define SL_BLOCK_LAST 2

/*
 Of a block: the end of its stream or message is missing.
 */
#define SL_BLOCK_CUT 4

/*
 Of a block: it holds a record, for `sl_request_text`, `sl_request_number` and `sl_request_json`.
 */
#define SL_BLOCK_RECORD 8

/*
 Of a block: it comes from the server of its stream. Only if `ip_version` is not 0.
 */
#define SL_BLOCK_SERVER 16

/*
 For `sl_request_push`: the block comes from the server of its stream, not from the client. Not for frames.
 */
#define SL_PUSH_SERVER 1

/*
 For `sl_request_push`: more of the same message follows. For messages only.
 */
#define SL_PUSH_MORE 2

/*
 For `sl_request_push`: the stream ends behind this block. For byte streams only.
 */
#define SL_PUSH_LAST 4

/*
 For `sl_request_push`: this call is the last push; without bytes it only says so.
 */
#define SL_PUSH_END 8

/*
 A request.
 */
typedef struct sl_request sl_request;

/*
 A block that came out of a request.
 */
typedef struct {
  /*
   The bytes, in place.
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
   Its type: SL_TYPE_FRAME and so on.
   */
  uint32_t kind;
  /*
   Its flags: SL_BLOCK_FIRST and so on.
   */
  uint32_t flags;
  /*
   Its class: pieces of one stream or message have the same.
   */
  uint32_t block_class;
  /*
   The open end that it came out of, counted from 0.
   */
  uint32_t end;
  /*
   Its length on the wire.
   */
  uint32_t wire;
  /*
   Bytes that are missing before it, in a stream or message.
   */
  uint32_t missing;
  /*
   Link type of a frame or packet; 0 for others.
   */
  uint32_t link_type;
  /*
   4 or 6. 0: its stream is not known, and the fields below have no meaning.
   */
  uint32_t ip_version;
  /*
   Protocol number of the stream: 6 for TCP, 17 for UDP.
   */
  uint32_t protocol;
  /*
   Port of the client.
   */
  uint16_t client_port;
  /*
   Port of the server.
   */
  uint16_t server_port;
  /*
   Address of the client, in network order; the first 4 bytes for version 4.
   */
  uint8_t client[16];
  /*
   Address of the server.
   */
  uint8_t server[16];
} sl_request_block;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Opens a request: it opens all it needs, or leaves all closed. 0, or -1; then `sl_request_error` says why. Close the
 handle in both cases; it is NULL if `text` is NULL.

 # Safety

 `text` ends with a zero byte; `request` has room for the handle.
 */
int32_t sl_request_open(const char *text,
                        sl_request **request);

/*
 As `sl_request_open`, with variables: names and values in turn, and NULL after the last. `$name` in the request
 stands for its value, taken literally. NULL: no variables.

 # Safety

 As for `sl_request_open`; all of `variables` end with a zero byte.
 */
int32_t sl_request_open_with(const char *text,
                             const char *const *variables,
                             sl_request **request);

/*
 The next block of the request. 1; 0 at the end, or until the program pushes more; or -1. An error of the request
 comes after its blocks, and again at each further call.

 # Safety

 `request` is from `sl_request_open`; `block` has room for the answer.
 */
int32_t sl_request_next(sl_request *request,
                        sl_request_block *block);

/*
 Pushes a block into a request that begins with `push_frames`, `push_bytes` or `push_messages`. Copies its bytes. 0,
 or -1. The call takes back the block from `sl_request_next`.

 # Safety

 `request` is from `sl_request_open`; `bytes` has `len` bytes, and may be NULL if `len` is 0.
 */
int32_t sl_request_push(sl_request *request,
                        const void *bytes,
                        uintptr_t len,
                        uint32_t flags);

/*
 Finds a text in the record of the last block from `sl_request_next`. 1; 0 if the record has no such text; -1 if the
 block holds no record. Writes a pointer to the text to `text`, and its length to `len`; no zero byte follows it.

 # Safety

 `request` is from `sl_request_open`; `name` ends with a zero byte; `text` and `len` have room for the answer.
 */
int32_t sl_request_text(sl_request *request,
                        const char *name,
                        const char **text,
                        uintptr_t *len);

/*
 As `sl_request_text`, for a number, a time (nanoseconds since 1970 UTC), a duration (in the unit that JSON shows, or
 nanoseconds where that is seconds with a fraction) or a flag (0 or 1).

 # Safety

 `request` is from `sl_request_open`; `name` ends with a zero byte; `number` has room for the answer.
 */
int32_t sl_request_number(sl_request *request,
                          const char *name,
                          uint64_t *number);

/*
 The record of the last block from `sl_request_next`, as one JSON object that ends with a zero byte. NULL: the block
 holds no record.

 # Safety

 `request` is NULL or from `sl_request_open`.
 */
const char *sl_request_json(sl_request *request);

/*
 The error of the last call that gave -1 or NULL: a text for people, valid until the next call for the handle. Empty
 if there was no error. Never NULL.

 # Safety

 `request` is NULL or from `sl_request_open`.
 */
const char *sl_request_error(const sl_request *request);

/*
 Ends the request at once, and frees the handle. 0, or -1 if it ended with an error or is NULL.

 # Safety

 `request` is NULL or from `sl_request_open`, and is not used again.
 */
int32_t sl_request_close(sl_request *request);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STREAMLINE_REQUEST_H */
