/* Prints the method and URL of each HTTP request in a byte stream that this program reads: a program gives its bytes to a
 * request.
 *
 * cc push.c -I../../crates/capi-request/include -L../../target/release -lstreamline_request -o push
 * printf 'GET /a HTTP/1.1\r\nHost: b\r\n\r\n' | ./push */
#include <stdio.h>
#include <streamline_request.h>

static int print_requests(sl_request *request) {
    sl_request_block block;
    const char *method, *url;
    size_t method_len, url_len;
    int result;

    while ((result = sl_request_next(request, &block)) > 0) {
        if (!(block.flags & SL_BLOCK_RECORD)) continue;
        if (sl_request_text(request, "http.http_method", &method, &method_len) != 1) continue;
        if (sl_request_text(request, "http.url", &url, &url_len) != 1) continue;
        printf("%.*s %.*s\n", (int)method_len, method, (int)url_len, url);
    }
    return result;
}

int main(void) {
    sl_request *request;
    char bytes[4096];
    size_t len;

    if (sl_request_open("push_bytes | http", &request) < 0) goto failed;
    while ((len = fread(bytes, 1, sizeof bytes, stdin)) > 0) {
        if (sl_request_push(request, bytes, len, 0) < 0 || print_requests(request) < 0) goto failed;
    }
    if (sl_request_push(request, NULL, 0, SL_PUSH_END) < 0 || print_requests(request) < 0) goto failed;
    return sl_request_close(request) < 0;

failed:
    fprintf(stderr, "%s\n", sl_request_error(request));
    sl_request_close(request);
    return 1;
}
