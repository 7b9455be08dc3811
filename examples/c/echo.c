/* An echo server for TCP and UDP, and its clients, over flows of the daemon's interfaces.
 *
 * cc echo.c -I../../crates/capi-net/include -L../../target/release -lstreamline_net -o echo
 * ./echo serve 0.0.0.0 7000
 * ./echo tcp 10.0.0.2 7000 < FILE > COPY
 * ./echo udp 10.0.0.2 7000 < FILE > COPY */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <streamline_net.h>
#include <unistd.h>

/* Connections that the server has at a time; others wait. */
#define CONNECTIONS 64

/* Bytes that were read, and those of them that were written. */
typedef struct {
    char bytes[16384];
    size_t written, read;
} piece;

static struct {
    sl_socket *socket;
    piece piece;
} connections[CONNECTIONS];

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, sl_net_error());
    return 1;
}

static int64_t put(sl_socket *socket, piece *piece) {
    int64_t count = sl_net_write(socket, piece->bytes + piece->written, piece->read - piece->written);
    if (count > 0) piece->written += (size_t)count;
    return count;
}

/* Sends back what comes until a call would wait: 1. 0 at the end of the connection, or a negative errno. */
static int64_t echo(sl_socket *socket, piece *piece) {
    int64_t count = 1;
    while (count > 0) {
        if (piece->written < piece->read) {
            count = put(socket, piece);
        } else if ((count = sl_net_read(socket, piece->bytes, sizeof piece->bytes)) > 0) {
            piece->written = 0;
            piece->read = (size_t)count;
        }
    }
    return count == -EAGAIN ? 1 : count;
}

/* Sends each datagram back until a call would wait: 1, or a negative errno. */
static int64_t echo_datagrams(sl_socket *socket) {
    static char bytes[65536];
    struct sockaddr_storage from;
    for (;;) {
        socklen_t length = sizeof from;
        int64_t count = sl_net_receive_from(socket, bytes, sizeof bytes, (struct sockaddr *)&from, &length);
        if (count == -EAGAIN) return 1;
        if (count == -ENETDOWN) return count;
        /* Others are about a datagram sent before: its receiver has gone. One that finds no room is lost, as on any wire. */
        if (count >= 0) sl_net_send_to(socket, bytes, (size_t)count, (struct sockaddr *)&from, length);
    }
}

static int serve(const struct sockaddr_in *address) {
    sl_net_options options = {.nonblocking = 1};
    sl_socket *listener, *datagrams, *socket;
    struct pollfd polled[2 + CONNECTIONS];
    int result, at, open = 0;

    if (sl_net_listen(&options, (const struct sockaddr *)address, sizeof *address, &listener) < 0) return failed("tcp");
    if (sl_net_udp(&options, (const struct sockaddr *)address, sizeof *address, &datagrams) < 0) return failed("udp");
    for (;;) {
        while (open < CONNECTIONS && (result = sl_net_accept(listener, &socket, NULL, NULL)) != -EAGAIN) {
            if (result < 0) return failed("accept");
            sl_net_set_nonblocking(socket, 1);
            connections[open].piece.written = connections[open].piece.read = 0;
            connections[open++].socket = socket;
        }
        if (echo_datagrams(datagrams) < 0) return failed("udp");
        for (at = open - 1; at >= 0; at--) {
            if (echo(connections[at].socket, &connections[at].piece) > 0) continue;
            sl_net_close(connections[at].socket);
            connections[at] = connections[--open];
        }
        polled[0].fd = open < CONNECTIONS ? sl_net_poll_fd(listener) : -1;
        polled[1].fd = sl_net_poll_fd(datagrams);
        for (at = 0; at < open; at++) {
            int has_bytes = connections[at].piece.written < connections[at].piece.read;
            socket = connections[at].socket;
            polled[2 + at].fd = has_bytes ? sl_net_writable_fd(socket) : sl_net_poll_fd(socket);
        }
        for (at = 0; at < 2 + open; at++) polled[at].events = POLLIN;
        if (poll(polled, (nfds_t)(2 + open), -1) < 0 && errno != EINTR) return perror("poll"), 1;
    }
}

/* Sends standard input, and writes what comes back. */
static int send_stream(const struct sockaddr_in *address) {
    static piece in;
    static char out[16384];
    sl_socket *socket;
    int at_end = 0;
    int64_t count;

    if (sl_net_connect(NULL, (const struct sockaddr *)address, sizeof *address, &socket) < 0) return failed("connect");
    sl_net_set_nonblocking(socket, 1);
    while ((count = sl_net_read(socket, out, sizeof out)) != 0) {
        int has_bytes = in.written < in.read;
        struct pollfd polled[] = {
            {.fd = sl_net_poll_fd(socket), .events = POLLIN},
            {.fd = has_bytes ? sl_net_writable_fd(socket) : at_end ? -1 : STDIN_FILENO, .events = POLLIN},
        };
        if (count > 0 && fwrite(out, 1, (size_t)count, stdout) != (size_t)count) return perror("output"), 1;
        if (count < 0 && count != -EAGAIN) return failed("read");
        if (poll(polled, 2, count > 0 ? 0 : -1) < 0 && errno != EINTR) return perror("poll"), 1;
        if (!polled[1].revents) continue;
        if (has_bytes) {
            if ((count = put(socket, &in)) < 0 && count != -EAGAIN) return failed("write");
        } else {
            ssize_t got = read(STDIN_FILENO, in.bytes, sizeof in.bytes);
            if (got < 0) return perror("input"), 1;
            at_end = got == 0;
            in.written = 0;
            in.read = (size_t)got;
            if (at_end) sl_net_shutdown(socket, SHUT_WR);
        }
    }
    return sl_net_close(socket) < 0 || fflush(stdout) != 0;
}

/* Sends standard input in datagrams, and writes the answer to each before it sends the next. */
static int send_datagrams(const struct sockaddr_in *address) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    char bytes[1000], answer[1000];
    sl_socket *socket;
    size_t count;

    if (sl_net_udp(NULL, (const struct sockaddr *)&any, sizeof any, &socket) < 0) return failed("udp");
    if (sl_net_set_peer(socket, (const struct sockaddr *)address, sizeof *address) < 0) return failed("peer");
    sl_net_set_timeouts(socket, 1000, 1000);
    while ((count = fread(bytes, 1, sizeof bytes, stdin)) > 0) {
        int64_t came = -EAGAIN;
        for (int attempt = 0; attempt < 5 && came == -EAGAIN; attempt++) {
            if (sl_net_write(socket, bytes, count) < 0) return failed("send");
            came = sl_net_read(socket, answer, sizeof answer);
        }
        if (came == -EAGAIN) return fprintf(stderr, "no answer\n"), 1;
        if (came < 0) return failed("receive");
        fwrite(answer, 1, (size_t)came, stdout);
    }
    return sl_net_close(socket) < 0 || fflush(stdout) != 0;
}

int main(int count, char **names) {
    struct sockaddr_in address = {.sin_family = AF_INET};

    if (count != 4 || inet_pton(AF_INET, names[2], &address.sin_addr) != 1) goto usage;
    address.sin_port = htons((uint16_t)atoi(names[3]));
    if (strcmp(names[1], "serve") == 0) return serve(&address);
    if (strcmp(names[1], "tcp") == 0) return send_stream(&address);
    if (strcmp(names[1], "udp") == 0) return send_datagrams(&address);
usage:
    fprintf(stderr, "usage: echo serve|tcp|udp ADDRESS PORT\n");
    return 2;
}
