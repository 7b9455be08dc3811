//! The examples in C, from `examples/c` and the guide, compiled and run; and errors that a C program can make.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testkit::library;

/// Compiles a program. `None`: there is no compiler.
fn compile(source: &Path, folder: &Path) -> Option<PathBuf> {
    let program = folder.join("program");
    library::compile(source, &program, "capi-request", library::requests()).then_some(program)
}

fn run(program: &Path, arguments: &[&Path], input: &[u8]) -> (String, String, Option<i32>) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let Output { stdout, stderr, status } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status.code())
}

/// The output of the Rust example, which has a test of its own that compares it with `json`.
const RESPONSES: &str = "192.88.99.42 100 0\n";

#[test]
fn the_example_prints_messages() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(&library::file("examples/c/messages.c"), folder.path()) else { return };
    let (stdout, stderr, status) = run(&program, &[&library::file("captures/web.pcap")], b"");
    assert!(stdout.starts_with(RESPONSES) && stdout.lines().count() > 5, "{stdout}{stderr}");
    assert_eq!(status, Some(0));
    let (_, stderr, status) = run(&program, &[Path::new("/nowhere.pcap")], b"");
    assert!(stderr.contains("/nowhere.pcap") && status == Some(1), "{stderr}");
    let (_, stderr, status) = run(&program, &[&library::file("README.md")], b"");
    assert!(stderr.contains("README.md") && status == Some(1), "{stderr}");
}

#[test]
fn the_example_pushes_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(&library::file("examples/c/push.c"), folder.path()) else { return };
    let (stdout, _, status) =
        run(&program, &[], b"GET /a HTTP/1.1\r\nHost: b\r\n\r\nPUT /b HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!((stdout.as_str(), status), ("GET /a\nPUT /b\n", Some(0)));
}

#[test]
fn the_guides_example_counts_frames() {
    let examples = library::guide("embedding.md", "streamline_request.h");
    let [example] = &examples[..] else { panic!("the guide has another: test it here, too") };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("records.c");
    std::fs::write(&source, example).unwrap();
    let Some(program) = compile(&source, folder.path()) else { return };
    let (stdout, stderr, status) = run(&program, &[&library::file("captures/dns.pcap")], b"");
    assert!(stdout.lines().count() == 4 && stdout.contains(r#""event_type":"dns""#), "{stdout}{stderr}");
    assert_eq!(status, Some(0));
}

const WRONG: &str = r#"
#include <stdio.h>
#include <string.h>
#include <streamline_request.h>

#define CHECK(holds) do { if (!(holds)) return fprintf(stderr, "line %d: %s\n", __LINE__, sl_request_error(request)), 1; } while (0)
#define SAYS(text) CHECK(strstr(sl_request_error(request), text) != NULL)

int main(void) {
    sl_request *request = NULL;
    sl_request_block block;

    CHECK(sl_request_open("push_frames | htp", &request) == -1);
    SAYS("did you mean `http`?"); SAYS("^^^");
    CHECK(sl_request_next(request, &block) == -1);
    SAYS("did you mean");
    CHECK(sl_request_close(request) == -1);

    CHECK(sl_request_open("push_frames", &request) == 0);
    CHECK(sl_request_push(request, "x", 1, SL_PUSH_SERVER) == -1);
    SAYS("takes frame");
    CHECK(sl_request_push(request, "x", 1, 0) == 0);
    CHECK(sl_request_next(request, &block) == 1);
    CHECK(block.kind == SL_TYPE_FRAME && block.len == 1 && *(const char *)block.bytes == 'x' && block.link_type == 1);
    CHECK(sl_request_next(request, &block) == 0);
    CHECK(sl_request_push(request, NULL, 0, SL_PUSH_END) == 0);
    CHECK(sl_request_push(request, "x", 1, 0) == -1);
    SAYS("after the end");
    CHECK(sl_request_next(request, &block) == 0);
    CHECK(sl_request_next(request, &block) == 0);
    CHECK(sl_request_push(request, "x", 1, 0) == -1);
    SAYS("is over");
    CHECK(sl_request_close(request) == 0);
    return 0;
}
"#;

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("wrong.c");
    std::fs::write(&source, WRONG).unwrap();
    let Some(program) = compile(&source, folder.path()) else { return };
    let (_, stderr, status) = run(&program, &[], b"");
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
}

const STAGED: &str = r#"
#include <stdio.h>
#include <string.h>
#include <streamline_request.h>

static int blocks(const char *text) {
    sl_request *request = NULL;
    sl_request_block block;
    int count = 0, next = -1;

    if (sl_request_open(text, &request) == 0)
        while ((next = sl_request_next(request, &block)) == 1)
            count++;
    if (next != 0)
        fprintf(stderr, "%s: %s\n", text, sl_request_error(request));
    sl_request_close(request);
    return next == 0 ? count : -1;
}

int main(int argc, char **argv) {
    const char *texts[] = {"pcap %s | http", "pcap %s || http", "pcap %s || tcp || http", "set workers=2; pcap %s | http"};
    sl_request *request = NULL;
    sl_request_block block;
    char text[4096];

    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, texts[i], argv[argc - 1]);
        printf("%d\n", blocks(text));
    }
    /* What is pushed and what is taken is one stage. */
    if (sl_request_open("push_frames || head 10", &request) != 0 || sl_request_push(request, "x", 1, 0) != 0)
        return 1;
    if (sl_request_next(request, &block) != 1 || block.len != 1 || sl_request_close(request) != 0)
        return 2;
    /* Closed early: its other threads end. */
    if (sl_request_open("generate || head 1000M", &request) != 0 || sl_request_next(request, &block) != 1)
        return 3;
    return sl_request_close(request) == 0 ? 0 : 4;
}
"#;

#[test]
fn requests_in_stages_give_the_same_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("staged.c");
    std::fs::write(&source, STAGED).unwrap();
    let Some(program) = compile(&source, folder.path()) else { return };
    let (stdout, stderr, status) = run(&program, &[&library::file("captures/web.pcap")], b"");
    let counts: Vec<i32> = stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(counts.len() == 4 && counts[0] > 5 && counts.iter().all(|count| *count == counts[0]), "{stdout}{stderr}");
    assert_eq!(status, Some(0), "{stderr}");
}
