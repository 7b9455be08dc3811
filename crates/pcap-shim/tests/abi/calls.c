/* Calls libpcap's functions on a device, and compares the results with those of libpcap 1.10. With libpcap itself it finds no
 * difference, which tests the test. Only this program's frames are on the device.
 *
 *   calls DEVICE INTERFACE FOLDER
 *
 * The program opens DEVICE, and sends frames on INTERFACE, the interface behind it. */
#define _GNU_SOURCE
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The used parts of pcap/pcap.h, which need not be installed. */
typedef struct pcap pcap_t;
struct bpf_program { unsigned length; void *instructions; };
struct header { struct timeval time; uint32_t captured, wire; };
struct statistics { unsigned received, dropped, dropped_by_interface; };
struct interface { struct interface *next; char *name, *description; void *addresses; unsigned flags; };
typedef void handler(unsigned char *, const struct header *, const unsigned char *);
pcap_t *pcap_create(const char *, char *);
pcap_t *pcap_open_live(const char *, int, int, int, char *);
pcap_t *pcap_open_offline(const char *, char *);
int pcap_activate(pcap_t *), pcap_compile(pcap_t *, struct bpf_program *, const char *, int, uint32_t);
int pcap_datalink(pcap_t *), pcap_dispatch(pcap_t *, int, handler *, unsigned char *);
int pcap_findalldevs(struct interface **, char *), pcap_get_selectable_fd(pcap_t *), pcap_getnonblock(pcap_t *, char *);
int pcap_inject(pcap_t *, const void *, size_t), pcap_list_datalinks(pcap_t *, int **), pcap_loop(pcap_t *, int, handler *, unsigned char *);
int pcap_next_ex(pcap_t *, struct header **, const unsigned char **), pcap_sendpacket(pcap_t *, const unsigned char *, int);
int pcap_set_datalink(pcap_t *, int), pcap_set_immediate_mode(pcap_t *, int), pcap_set_snaplen(pcap_t *, int);
int pcap_set_timeout(pcap_t *, int), pcap_set_promisc(pcap_t *, int), pcap_set_tstamp_precision(pcap_t *, int);
int pcap_get_tstamp_precision(pcap_t *), pcap_setdirection(pcap_t *, int), pcap_setfilter(pcap_t *, struct bpf_program *);
int pcap_setnonblock(pcap_t *, int, char *), pcap_snapshot(pcap_t *), pcap_stats(pcap_t *, struct statistics *);
const unsigned char *pcap_next(pcap_t *, struct header *);
const char *pcap_lib_version(void);
char *pcap_geterr(pcap_t *);
void pcap_breakloop(pcap_t *), pcap_close(pcap_t *), pcap_freealldevs(struct interface *), pcap_freecode(struct bpf_program *);
void pcap_free_datalinks(int *), pcap_dump(unsigned char *, const struct header *, const unsigned char *), pcap_dump_close(void *);
void *pcap_dump_open(pcap_t *, const char *);

enum { BREAK = -2, NOT_ACTIVATED = -3, ACTIVATED = -4, NO_SUCH_DEVICE = -5 };

static int wrong;
static char error[256];

static void check(int line, const char *what, long got, long expected)
{
    if (got != expected) {
        printf("line %d: %s gave %ld, not %ld (%s)\n", line, what, got, expected, error);
        wrong = 1;
    }
}
#define CHECK(call, expected) check(__LINE__, #call, (long)(call), (long)(expected))

static int sender, interface_number, is_ours;

/* A UDP packet to a port, of 60 bytes; its last byte is its number. */
static unsigned char *frame(int port, int number)
{
    static const unsigned char beginning[] = {
        255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0,
        10, 0, 0, 1, 10, 0, 0, 2, 15, 160,
    };
    static unsigned char bytes[60];
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, beginning, sizeof beginning);
    bytes[36] = port >> 8, bytes[37] = port, bytes[39] = 26, bytes[59] = number;
    return bytes;
}

static void send_frame(int port, int number)
{
    struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = interface_number, .sll_halen = 6 };
    CHECK(sendto(sender, frame(port, number), 60, 0, (struct sockaddr *)&to, sizeof to), 60);
}

/* Packets that a callback saw. */
static struct { int count, last, sum, stop_at; pcap_t *handle; struct header header; } seen;

static void see(unsigned char *user, const struct header *header, const unsigned char *bytes)
{
    CHECK(user == (unsigned char *)&seen, 1);
    seen.count++;
    seen.last = bytes[header->captured - 1];
    seen.sum += seen.last;
    seen.header = *header;
    if (seen.count == seen.stop_at)
        pcap_breakloop(seen.handle);
}

static void forget(pcap_t *handle, int stop_at)
{
    memset(&seen, 0, sizeof seen);
    seen.handle = handle;
    seen.stop_at = stop_at;
}

static void set_filter(pcap_t *handle, const char *text)
{
    struct bpf_program program;
    CHECK(pcap_compile(handle, &program, text, 1, 0), 0);
    CHECK(pcap_setfilter(handle, &program), 0);
    pcap_freecode(&program);
}

static int is_readable(int fd, int milliseconds)
{
    struct pollfd one = { .fd = fd, .events = POLLIN };
    return poll(&one, 1, milliseconds);
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static pcap_t *to_break;

static void on_alarm(int signal)
{
    struct statistics statistics;
    (void)signal;
    pcap_stats(to_break, &statistics);
    pcap_breakloop(to_break);
}

static pcap_t *open_device(const char *device, int timeout)
{
    pcap_t *handle = pcap_create(device, error);
    if (!handle) {
        printf("pcap_create: %s\n", error);
        exit(1);
    }
    CHECK(pcap_set_snaplen(handle, 1000), 0);
    CHECK(pcap_set_promisc(handle, 1), 0);
    CHECK(pcap_set_timeout(handle, timeout), 0);
    CHECK(pcap_set_immediate_mode(handle, 1), 0);
    CHECK(pcap_set_tstamp_precision(handle, 1), 0);
    /* These calls need an active handle. */
    CHECK(pcap_dispatch(handle, 1, see, NULL), NOT_ACTIVATED);
    CHECK(pcap_datalink(handle), NOT_ACTIVATED);
    CHECK(pcap_snapshot(handle), NOT_ACTIVATED);
    int done = pcap_activate(handle);
    if (done) {
        printf("pcap_activate: %d %s\n", done, pcap_geterr(handle));
        exit(1);
    }
    CHECK(pcap_set_snaplen(handle, 2000), ACTIVATED);
    CHECK(pcap_activate(handle), ACTIVATED);
    return handle;
}

/* Missing devices, lists, link types. */
static void about(const char *device, pcap_t *handle)
{
    struct interface *list, *one;
    int *links, found = 0;
    pcap_t *none = pcap_create(is_ours ? "sl:none" : "none", error);
    CHECK(pcap_activate(none), NO_SUCH_DEVICE);
    CHECK(strlen(pcap_geterr(none)) > 0, 1);
    pcap_close(none);
    CHECK(strncmp(pcap_lib_version(), "libpcap version 1.10", 20), 0);
    CHECK(pcap_findalldevs(&list, error), 0);
    for (one = list; one; one = one->next)
        found += !strcmp(one->name, device);
    CHECK(found, 1);
    pcap_freealldevs(list);
    CHECK(pcap_datalink(handle), 1);
    CHECK(pcap_snapshot(handle), 1000);
    CHECK(pcap_get_tstamp_precision(handle), 1);
    CHECK(pcap_list_datalinks(handle, &links), 2);
    CHECK(links[0] == 1 && links[1] == 143, 1);
    pcap_free_datalinks(links);
    CHECK(pcap_set_datalink(handle, 101), -1);
    CHECK(pcap_set_datalink(handle, 143), 0);
    CHECK(pcap_datalink(handle), 143);
    CHECK(pcap_set_datalink(handle, 1), 0);
}

/* One packet at a time, with a filter and without, waiting and not. */
static void one_by_one(pcap_t *handle)
{
    struct header *header, copy;
    const unsigned char *bytes;
    set_filter(handle, "udp port 53");
    send_frame(80, 1);
    send_frame(53, 2);
    CHECK(pcap_next_ex(handle, &header, &bytes), 1);
    CHECK(bytes[59], 2);
    CHECK(header->captured == 60 && header->wire == 60, 1);
    CHECK(labs((long)header->time.tv_sec - (long)time(NULL)) < 60, 1);
    send_frame(53, 3);
    bytes = pcap_next(handle, &copy);
    CHECK(bytes ? bytes[59] : -1, 3);
    /* No packets: our library waits for the timeout, libpcap 1.10 for a packet. Both are permitted. */
    if (is_ours) {
        long began = milliseconds();
        CHECK(pcap_next_ex(handle, &header, &bytes), 0);
        CHECK(milliseconds() - began >= 45, 1);
        CHECK(pcap_next(handle, &copy) == NULL, 1);
        CHECK(pcap_dispatch(handle, -1, see, (unsigned char *)&seen), 0);
    }
    CHECK(pcap_getnonblock(handle, error), 0);
    CHECK(pcap_setnonblock(handle, 1, error), 0);
    CHECK(pcap_getnonblock(handle, error), 1);
    CHECK(pcap_next_ex(handle, &header, &bytes), 0);
    send_frame(53, 4);
    CHECK(pcap_next_ex(handle, &header, &bytes), 1);
    CHECK(bytes[59], 4);
    CHECK(pcap_setnonblock(handle, 0, error), 0);
}

/* Counts, stops from a callback and from a signal handler, and the packets left over. */
static void many(pcap_t *handle)
{
    int number;
    for (number = 1; number <= 10; number++)
        send_frame(53, number);
    forget(handle, 0);
    CHECK(pcap_dispatch(handle, 3, see, (unsigned char *)&seen), 3);
    CHECK(seen.last, 3);
    CHECK(pcap_loop(handle, 4, see, (unsigned char *)&seen), 0);
    CHECK(seen.count == 7 && seen.last == 7, 1);
    forget(handle, 2);
    CHECK(pcap_loop(handle, -1, see, (unsigned char *)&seen), BREAK);
    CHECK(seen.count == 2 && seen.last == 9, 1);
    forget(handle, 0);
    CHECK(pcap_dispatch(handle, -1, see, (unsigned char *)&seen), 1);
    CHECK(seen.last, 10);
    /* While there are no packets. */
    struct itimerval soon = { .it_value.tv_usec = 100000 };
    signal(SIGALRM, on_alarm);
    to_break = handle;
    setitimer(ITIMER_REAL, &soon, NULL);
    CHECK(pcap_loop(handle, -1, see, (unsigned char *)&seen), BREAK);
    /* Once. */
    send_frame(53, 11);
    CHECK(pcap_loop(handle, 1, see, (unsigned char *)&seen), 0);
    CHECK(seen.last, 11);
    /* Before anything is read. */
    pcap_breakloop(handle);
    CHECK(pcap_dispatch(handle, 1, see, (unsigned char *)&seen), BREAK);
}

/* The last filter decides about waiting packets, and about the number of bytes to keep. */
static void filters(pcap_t *handle)
{
    struct { uint16_t code; uint8_t jt, jf; uint32_t k; } cut[] = { { 6, 0, 0, 59 } };
    struct bpf_program program = { 1, cut }, bad = { 1, NULL };
    send_frame(53, 1);
    send_frame(53, 2);
    set_filter(handle, "udp port 80");
    send_frame(53, 3);
    send_frame(80, 4);
    forget(handle, 0);
    CHECK(pcap_loop(handle, 1, see, (unsigned char *)&seen), 0);
    CHECK(seen.last, 4);
    CHECK(pcap_setfilter(handle, &program), 0);
    send_frame(53, 5);
    CHECK(pcap_loop(handle, 1, see, (unsigned char *)&seen), 0);
    CHECK(seen.header.captured == 59 && seen.header.wire == 60, 1);
    CHECK(pcap_setfilter(handle, NULL), -1);
    CHECK(pcap_compile(handle, &bad, "udp porrt 1", 1, 0), -1);
    CHECK(strlen(pcap_geterr(handle)) > 0, 1);
    set_filter(handle, "");
    CHECK(pcap_setdirection(handle, 1), 0);
    CHECK(pcap_setnonblock(handle, 1, error), 0);
    send_frame(53, 6);
    CHECK(pcap_dispatch(handle, -1, see, (unsigned char *)&seen), 0);
    CHECK(pcap_setnonblock(handle, 0, error), 0);
    CHECK(pcap_setdirection(handle, 2), 0);
    send_frame(53, 7);
    CHECK(pcap_loop(handle, 1, see, (unsigned char *)&seen), 0);
    CHECK(seen.last, 7);
    CHECK(pcap_setdirection(handle, 0), 0);
}

/* The selectable descriptor is readable only while there are packets. */
static void select_on(pcap_t *handle)
{
    int fd = pcap_get_selectable_fd(handle);
    CHECK(fd >= 0, 1);
    CHECK(pcap_setnonblock(handle, 1, error), 0);
    CHECK(is_readable(fd, 0), 0);
    send_frame(53, 1);
    send_frame(53, 2);
    CHECK(is_readable(fd, 10000), 1);
    forget(handle, 0);
    CHECK(pcap_dispatch(handle, 1, see, (unsigned char *)&seen), 1);
    CHECK(is_readable(fd, 10000), 1);
    CHECK(pcap_dispatch(handle, 1, see, (unsigned char *)&seen), 1);
    CHECK(is_readable(fd, 0), 0);
    CHECK(pcap_dispatch(handle, 1, see, (unsigned char *)&seen), 0);
    CHECK(pcap_setnonblock(handle, 0, error), 0);
}

/* Files, and handles that read them. */
static void files(pcap_t *handle, const char *folder)
{
    char path[4096];
    struct header *header;
    const unsigned char *bytes;
    snprintf(path, sizeof path, "%s/dump.pcap", folder);
    void *dumper = pcap_dump_open(handle, path);
    CHECK(dumper != NULL, 1);
    send_frame(53, 1);
    send_frame(53, 2);
    CHECK(pcap_loop(handle, 2, (handler *)pcap_dump, dumper), 0);
    pcap_dump_close(dumper);
    pcap_t *file = pcap_open_offline(path, error);
    CHECK(file != NULL, 1);
    CHECK(pcap_snapshot(file), 1000);
    CHECK(pcap_next_ex(file, &header, &bytes), 1);
    CHECK(pcap_next_ex(file, &header, &bytes), 1);
    CHECK(header->captured == 60 && bytes[59] == 2, 1);
    CHECK(pcap_next_ex(file, &header, &bytes), BREAK);
    pcap_close(file);
}

static void sending(const char *device, pcap_t *handle)
{
    pcap_t *other = pcap_open_live(device, 100, 1, 1000, error);
    struct statistics statistics;
    CHECK(other != NULL, 1);
    set_filter(handle, "udp port 7");
    CHECK(pcap_inject(other, frame(7, 1), 60), 60);
    CHECK(pcap_sendpacket(other, frame(7, 2), 60), 0);
    forget(handle, 0);
    CHECK(pcap_loop(handle, 2, see, (unsigned char *)&seen), 0);
    CHECK(seen.sum, 3);
    CHECK(pcap_stats(other, &statistics), 0);
    CHECK(statistics.dropped, 0);
    pcap_close(other);
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    is_ours = !strncmp(arguments[1], "sl:", 3);
    sender = socket(AF_PACKET, SOCK_RAW, 0);
    interface_number = if_nametoindex(arguments[2]);
    CHECK(sender >= 0 && interface_number > 0, 1);
    pcap_t *handle = open_device(arguments[1], 50);
    about(arguments[1], handle);
    one_by_one(handle);
    many(handle);
    filters(handle);
    select_on(handle);
    files(handle, arguments[3]);
    sending(arguments[1], handle);
    struct statistics statistics;
    CHECK(pcap_stats(handle, &statistics), 0);
    CHECK(statistics.received >= 20 && statistics.dropped == 0, 1);
    pcap_close(handle);
    return wrong;
}
