/* Prints the host, status and length of each HTTP response in a capture: a request gives its blocks to a program.
 *
 * cc messages.c -I../../crates/capi-request/include -L../../target/release -lstreamline_request -o messages
 * ./messages ../../captures/web.pcap */
#include <inttypes.h>
#include <stdio.h>
#include <streamline_request.h>

/* Messages that have not ended. A program that reads more than a few connections at a time needs a table of its own. */
#define OPEN 256
static struct {
    uint32_t block_class;
    int is_open;
    char host[64];
    uint64_t status, length;
} messages[OPEN];

static int find(uint32_t block_class) {
    int free = -1;
    for (int at = 0; at < OPEN; at++) {
        if (messages[at].is_open && messages[at].block_class == block_class) return at;
        if (!messages[at].is_open) free = at;
    }
    return free;
}

int main(int count, char **names) {
    sl_request *request;
    sl_request_block block;
    int result;

    if (count != 2) return fprintf(stderr, "usage: messages CAPTURE\n"), 2;
    const char *variables[] = {"file", names[1], NULL};
    if (sl_request_open_with("pcap $file | http", variables, &request) < 0) goto failed;
    while ((result = sl_request_next(request, &block)) > 0) {
        int at = find(block.block_class);
        if (at < 0) continue;
        if (block.flags & SL_BLOCK_RECORD) {
            const char *host = "-";
            size_t len = 1;
            /* A request has no status. */
            if (sl_request_number(request, "http.status", &messages[at].status) != 1) continue;
            sl_request_text(request, "http.hostname", &host, &len);
            snprintf(messages[at].host, sizeof messages[at].host, "%.*s", (int)len, host);
            messages[at].block_class = block.block_class;
            messages[at].is_open = 1;
            messages[at].length = 0;
        } else {
            messages[at].length += block.len; /* the bytes are at block.bytes */
        }
        if ((block.flags & SL_BLOCK_LAST) && messages[at].is_open) {
            printf("%s %" PRIu64 " %" PRIu64 "\n", messages[at].host, messages[at].status, messages[at].length);
            messages[at].is_open = 0;
        }
    }
    if (result < 0) goto failed;
    return sl_request_close(request) < 0;

failed:
    fprintf(stderr, "%s\n", sl_request_error(request));
    sl_request_close(request);
    return 1;
}
