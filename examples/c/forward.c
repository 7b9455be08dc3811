/* Gives every block of one ring that is longer than 100 bytes to another; no byte of it is copied.
 *
 * cc forward.c -I../../crates/capi/include -L../../target/release -lstreamline -o forward && ./forward FROM TO */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <streamline.h>

static int failed(const char *what, int64_t error) {
    fprintf(stderr, "%s: %s\n", what, strerror((int)-error));
    return 1;
}

int main(int count, char **names) {
    sl_pipe *from, *to;
    sl_block block;
    int64_t result;

    if (count != 3) return fprintf(stderr, "usage: forward FROM TO\n"), 2;
    if ((result = sl_open(names[1], SL_READ, &from)) < 0) return failed(names[1], result);
    if ((result = sl_open(names[2], SL_WRITE, &to)) < 0) return failed(names[2], result);
    while ((result = sl_peek(from, &block)) > 0) {
        if (block.len > 100) {
            result = sl_forward(from, to, SIZE_MAX);
        } else {
            result = sl_release(from, SIZE_MAX);
        }
        if (result < 0) return failed("forward", result);
    }
    if (result == 0) result = sl_drain(from);
    sl_close(to);
    sl_close(from);
    return result < 0 ? failed(names[1], result) : 0;
}
