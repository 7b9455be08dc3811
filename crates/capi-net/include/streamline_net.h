/* Sockets over flows. Generated from crates/capi-net/src; `UPDATE=1 cargo test -p capi-net --test header` writes it anew. */

#ifndef STREAMLINE_NET_H
#define STREAMLINE_NET_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

/*
 A connection, a listener of TCP, or a socket of UDP. Threads may share it, but for `sl_net_close`. A child that `fork` made must
 not use it.
 */
typedef struct sl_socket sl_socket;

/*
 What a socket runs on.
 */
typedef struct {
  /*
   Hardware address of the interface.
   */
  uint8_t mac[6];
  /*
   Length of the prefix of the socket's address, bits.
   */
  uint8_t prefix;
  /*
   Has the interface the socket's address? If not (0), nothing travels until the address is back.
   */
  uint8_t has_address;
  /*
   Bytes of the longest IP packet.
   */
  uint32_t mtu;
} sl_net_facts;

/*
 How a socket is opened. Fill it with zeros, then set what is to differ: a field of 0 or NULL means what its comment says.
 */
typedef struct {
  /*
   Path of the daemon's control socket. NULL: the one in the environment variable STREAMLINE_DAEMON, or the usual one.
   */
  const char *daemon;
  /*
   The interface. NULL: the one that routes to the peer, or the only one.
   */
  const char *device;
  /*
   The share of the wire, for example "4ms/100ms". NULL: an equal part of the rest.
   */
  const char *share;
  /*
   The blocks of the stack below `tcp` or `udp`. NULL: `ipv4 | ethernet DEVICE`.
   */
  const char *stack;
  /*
   For `sl_net_connect`: address and port of this side; port 0: any that is free. NULL: the interface's address, any port.
   */
  const struct sockaddr *local;
  /*
   Length of `local`.
   */
  socklen_t local_length;
  /*
   For `sl_net_listen`: connections that may wait, 1024 at most. 0: 128.
   */
  uint32_t backlog;
  /*
   Bytes of the receive buffer of a connection. 0: 256 KiB.
   */
  uint32_t receive_bytes;
  /*
   Bytes of the send buffer of a connection. 0: 256 KiB.
   */
  uint32_t send_bytes;
  /*
   For `sl_net_connect`: how long the handshake may take, in milliseconds. 0: a minute.
   */
  uint32_t connect_timeout_ms;
  /*
   Is called with `context` when what the socket runs on changes; of a listener: for the connections that it accepts. A thread of the
   library's calls it, perhaps several at once, and it must neither wait nor use the socket. NULL: nothing is called.
   */
  void (*on_change)(void *context, const sl_net_facts *facts);
  /*
   For `on_change`.
   */
  void *context;
  /*
   Not 0: as after `sl_net_set_nonblocking`, and `sl_net_connect` does not wait for the handshake.
   */
  int32_t nonblocking;
} sl_net_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What was wrong with the last call of this thread that returned a negative number other than -EAGAIN and -EINPROGRESS, for people
 to read. Good until the next such call.
 */
const char *sl_net_error(void);

/*
 Connects to `peer`. `options` may be NULL. 0, or a negative errno. With `options->nonblocking` it does not wait:
 `sl_net_connected` says how the handshake stands.

 # Safety

 `options` is null or filled as its fields say, `peer` has `length` bytes, `socket` is a place for the handle.
 */
int32_t sl_net_connect(const sl_net_options *options,
                       const struct sockaddr *peer,
                       socklen_t length,
                       sl_socket **socket);

/*
 How the handshake of a connection that did not wait for it ended: 0, -EINPROGRESS while it is under way, or a negative errno, once.
 The file descriptor of `sl_net_writable_fd` becomes readable with its end.

 # Safety

 `socket` is from `sl_net_connect`.
 */
int32_t sl_net_connected(sl_socket *socket);

/*
 Listens for connections at `local`: address 0.0.0.0: each of the interface's; port 0: any that is free. `options` may be NULL. 0, or
 a negative errno.

 # Safety

 As `sl_net_connect`.
 */
int32_t sl_net_listen(const sl_net_options *options,
                      const struct sockaddr *local,
                      socklen_t length,
                      sl_socket **socket);

/*
 Waits for a connection of a listener. `peer` gets the address of its other side, and `*length`, the room there, its length; both may
 be NULL. Calls for the connection wait, also where those for the listener do not. 0, or a negative errno.

 # Safety

 `listener` is from `sl_net_listen`, `socket` is a place for the handle, `peer` has `*length` bytes.
 */
int32_t sl_net_accept(sl_socket *listener,
                      sl_socket **socket,
                      struct sockaddr *peer,
                      socklen_t *length);

/*
 Opens a socket of UDP at `local`, as `sl_net_listen` has it. `options` may be NULL. 0, or a negative errno.

 # Safety

 As `sl_net_connect`.
 */
int32_t sl_net_udp(const sl_net_options *options,
                   const struct sockaddr *local,
                   socklen_t length,
                   sl_socket **socket);

/*
 A socket of UDP sends to this peer, and receives from it only, from now on. 0, or a negative errno.

 # Safety

 `socket` is from `sl_net_udp`, `peer` has `length` bytes.
 */
int32_t sl_net_set_peer(sl_socket *socket, const struct sockaddr *peer, socklen_t length);

/*
 Reads what there is, at most `len` bytes; of a socket of UDP one datagram, of which the rest is lost. Bytes read, 0 at the end of a
 connection, or a negative errno.

 # Safety

 `socket` is open; `buffer` has room for `len` bytes.
 */
int64_t sl_net_read(sl_socket *socket,
                    void *buffer,
                    uintptr_t len);

/*
 As `sl_net_read`, but what it reads stays.

 # Safety

 As `sl_net_read`.
 */
int64_t sl_net_peek(sl_socket *socket, void *buffer, uintptr_t len);

/*
 As `sl_net_read`, into `count` pieces one after the other, 1024 at most.

 # Safety

 `socket` is open; `pieces` has `count` elements, each with room for as many bytes as it says.
 */
int64_t sl_net_readv(sl_socket *socket, const struct iovec *pieces, uintptr_t count);

/*
 Writes all bytes, or as many as there is room for where calls do not wait; on a socket of UDP one datagram to its peer. Bytes written,
 or a negative errno: -EPIPE after the end (there is no signal), -EMSGSIZE for a datagram that is longer than the MTU permits.

 # Safety

 `socket` is open; `buffer` has `len` bytes.
 */
int64_t sl_net_write(sl_socket *socket,
                     const void *buffer,
                     uintptr_t len);

/*
 As `sl_net_write`, from `count` pieces one after the other, 1024 at most.

 # Safety

 `socket` is open; `pieces` has `count` elements, each with as many bytes as it says.
 */
int64_t sl_net_writev(sl_socket *socket, const struct iovec *pieces, uintptr_t count);

/*
 As `sl_net_read` of a socket of UDP; `from` gets the address of the sender, and `*length`, the room there, its length; both may be
 NULL.

 # Safety

 `socket` is from `sl_net_udp`; `buffer` has room for `len` bytes, `from` for `*length`.
 */
int64_t sl_net_receive_from(sl_socket *socket,
                            void *buffer,
                            uintptr_t len,
                            struct sockaddr *from,
                            socklen_t *length);

/*
 Sends one datagram to `to`. Bytes sent, or a negative errno, which may be about an earlier one.

 # Safety

 `socket` is from `sl_net_udp`; `buffer` has `len` bytes, `to` has `length`.
 */
int64_t sl_net_send_to(sl_socket *socket,
                       const void *buffer,
                       uintptr_t len,
                       const struct sockaddr *to,
                       socklen_t length);

/*
 Ends reading (SHUT_RD), writing (SHUT_WR) or both (SHUT_RDWR) of a connection. What was written before still goes out. 0, or a negative
 errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_shutdown(sl_socket *socket,
                        int32_t how);

/*
 A file descriptor to poll for POLLIN: readable while a call to read or accept would not wait. Of a socket of UDP: readable once there is
 news since a call returned -EAGAIN, so call until it does. It belongs to the socket: do not read, write or close it. The descriptor,
 or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_poll_fd(sl_socket *socket);

/*
 A file descriptor to poll for POLLIN, not POLLOUT: readable while a call to write would not wait. Of a socket of UDP it is that of
 `sl_net_poll_fd`. It belongs to the socket, as that one.

 # Safety

 `socket` is open.
 */
int32_t sl_net_writable_fd(sl_socket *socket);

/*
 Calls return -EAGAIN instead of waiting (not 0), or wait (0). 0, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_nonblocking(sl_socket *socket, int32_t on);

/*
 How many milliseconds a call to read or to write waits before it returns -EAGAIN. 0, as at first: for ever. 0, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_timeouts(sl_socket *socket,
                            uint32_t read_ms,
                            uint32_t write_ms);

/*
 A connection sends small writes at once (not 0), or waits for an acknowledgement of earlier ones (0, as at first). 0, or a negative
 errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_nodelay(sl_socket *socket,
                           int32_t on);

/*
 How many milliseconds `sl_net_close` waits until the other side of a connection has acknowledged everything. Negative, as at first: it
 does not wait, and the rest goes out behind it. 0: it resets the connection. 0, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_linger(sl_socket *socket,
                          int32_t ms);

/*
 Probes a quiet connection at this interval of milliseconds; after ten intervals without an answer it ends with -ETIMEDOUT. 0, as at
 first: no probes. 0, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_keepalive(sl_socket *socket,
                             uint32_t ms);

/*
 The error of a connection's end, or the last report about a datagram, as a negative errno, once; 0: none.

 # Safety

 `socket` is open.
 */
int32_t sl_net_take_error(sl_socket *socket);

/*
 Address and port of this side; `*length` is the room at `address`, and becomes the length of the address. 0, or a negative errno.

 # Safety

 `socket` is open; `address` has room for `*length` bytes.
 */
int32_t sl_net_local(sl_socket *socket,
                     struct sockaddr *address,
                     socklen_t *length);

/*
 Address and port of the other side, as `sl_net_local` has it. -ENOTCONN where there is none.

 # Safety

 As `sl_net_local`.
 */
int32_t sl_net_peer(sl_socket *socket, struct sockaddr *address, socklen_t *length);

/*
 What a connection or a socket of UDP runs on now. 0, or a negative errno.

 # Safety

 `socket` is open; `facts` is a place for the answer.
 */
int32_t sl_net_facts_of(sl_socket *socket, sl_net_facts *facts);

/*
 Closes a socket: what was written to a connection still goes out, for a minute at most, also after the program's `exit`; unread bytes
 reset it. The handle is gone whatever this returns. 0, or a negative errno.

 # Safety

 `socket` is null, or open; no other thread uses it.
 */
int32_t sl_net_close(sl_socket *socket);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STREAMLINE_NET_H */
