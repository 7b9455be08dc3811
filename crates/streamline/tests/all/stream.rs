//! A program takes the blocks of a request, and gives it blocks.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use streamline::{End, Error, OpenEnd, Output, Push, Session, StopFlag, Stream, Type};
use testkit::chain::Captured;

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures").join(name)
}

fn open(request: &str) -> Result<Stream, Error> {
    let file = capture("web.pcap").to_str().unwrap().to_string();
    Session::new().stream(request, &BTreeMap::from([("web".to_string(), file)]))
}

/// The lines that `inspect` and `json` would print, one for each block.
fn lines(stream: &mut Stream) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    while let Some(block) = stream.next()? {
        let text = block.json().unwrap_or_else(|| String::from_utf8_lossy(block.bytes()).into_owned());
        lines.push(text);
    }
    Ok(lines)
}

fn printed(request: &str) -> String {
    let captured = Captured::default();
    let session = Session::with_output(Output::new(Box::new(captured.clone()), false));
    let file = capture("web.pcap").to_str().unwrap().to_string();
    let job = session.prepare(request, &BTreeMap::from([("web".to_string(), file)])).unwrap();
    job.run(&StopFlag::new(), &mut |_| {}).unwrap();
    captured.text()
}

#[test]
fn records_are_those_that_json_writes() {
    for request in ["pcap $web | count", "pcap $web | tcp | count", "pcap $web | histogram size"] {
        let mut stream = open(request).unwrap();
        let given: String = lines(&mut stream).unwrap().iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(given, printed(request), "{request}");
        assert!(stream.is_over() && stream.next().unwrap().is_none(), "after the end comes nothing");
    }
}

#[test]
fn frames_are_those_of_the_capture_where_they_lie() {
    let file = std::fs::read(capture("web.pcap")).unwrap();
    let mut stream = open("pcap $web").unwrap();
    let mut at = 24;
    let mut count = 0;
    while let Some(block) = stream.next().unwrap() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        assert_eq!(block.bytes(), &file[at + 16..at + 16 + len]);
        assert_eq!((block.kind(), block.link_type(), block.facts()), (Type::Frame, Some(1), None));
        assert!(block.record().is_none() && block.json().is_none());
        (at, count) = (at + 16 + len, count + 1);
    }
    assert_eq!((at, count), (file.len(), 207));
    let report = stream.close().unwrap().report;
    assert_eq!((report.traffic.hold_copies, report.nodes[0].counters.blocks_made), (0, 207));
}

#[test]
fn messages_have_their_streams_and_bodies() {
    let mut stream = open("pcap $web | http").unwrap();
    assert_eq!(stream.ends(), [OpenEnd { label: "http".into(), kind: Type::Message }]);
    let (mut messages, mut ended, mut bodies) = (0, 0, 0);
    while let Some(block) = stream.next().unwrap() {
        assert_eq!(block.facts().unwrap().flow.protocol, 6);
        match block.record() {
            Some(record) => {
                assert_eq!(record.schema().name, "http");
                messages += 1;
            }
            None => bodies += block.bytes().len(),
        }
        ended += usize::from(block.is_last());
    }
    let finished = stream.close().unwrap();
    assert_eq!((messages, ended, finished.end), (23, 23, End::Input));
    let json = printed("pcap $web | http | json");
    let length = |line: &str| line.rsplit_once("\"length\":").unwrap().1.split(',').next().unwrap().parse().unwrap();
    assert_eq!(bodies, json.lines().map(|line| -> usize { length(line) }).sum::<usize>());
}

#[test]
fn each_open_end_has_its_number() {
    let mut stream = open("pcap $web | { http + count + drop }").unwrap();
    let mut seen = [0; 2];
    let labels: Vec<String> = stream.ends().iter().map(|end| end.label.clone()).collect();
    while let Some(block) = stream.next().unwrap() {
        assert_eq!(block.kind() == Type::Record, labels[block.end()] == "count");
        seen[block.end()] += 1;
    }
    seen.sort_unstable();
    assert_eq!((labels.len(), seen), (2, [1, 69]));
}

#[test]
fn a_block_stays_until_the_next_one_is_asked_for() {
    // Each pull makes blocks in the same memory again.
    let mut stream = open("generate count=5000 rate=1G").unwrap();
    let mut numbers = Vec::new();
    while let Some(block) = stream.next().unwrap() {
        let number = &block.bytes()[46..50];
        numbers.push(u32::from_be_bytes(number.try_into().unwrap()));
    }
    assert_eq!(numbers, (0..5000).collect::<Vec<_>>());
}

#[test]
fn a_stream_may_move_to_another_thread() {
    let mut stream = open("pcap $web | count").unwrap();
    let count = std::thread::spawn(move || lines(&mut stream).unwrap().len());
    assert_eq!(count.join().unwrap(), 1);
}

#[test]
fn memory_is_used_again_while_a_program_takes_blocks() {
    let mut stream = open("push_frames | { count + head 100k }").unwrap();
    let frame = vec![7; 1400];
    let mut most = 0;
    for _ in 0..20_000 {
        stream.push(&frame).unwrap();
        while let Some(block) = stream.next().unwrap() {
            assert_eq!(block.bytes(), frame);
        }
        most = most.max(stream.memory_bytes());
    }
    assert!(most < 8 << 20, "{most} bytes for 28 MB that were pushed");
    assert_eq!(stream.report().traffic.hold_copies, 0);
}

#[test]
fn a_stream_that_is_dropped_leaves_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.pcap");
    let text = format!("generate | {{ save {} + head 3 }}", file.display());
    let mut stream = open(&text).unwrap();
    assert!(stream.next().unwrap().is_some());
    drop(stream);
    let mut saved = Session::new()
        .stream("pcap $f | count", &BTreeMap::from([("f".into(), file.to_str().unwrap().into())]))
        .unwrap();
    assert!(saved.next().unwrap().unwrap().record().unwrap().number("blocks").unwrap() > 0);
    let mut stream = open("generate").unwrap();
    assert!(stream.next().unwrap().is_some());
    assert_eq!(stream.close().unwrap().end, End::Stopped);
}

#[test]
fn blocks_of_a_request_in_stages_are_those_of_one_thread() {
    let rows = [
        ("pcap $web | http", "pcap $web || http"),
        ("pcap $web | http", "pcap $web || tcp || http"),
        ("pcap $web | http", "set workers=2; pcap $web | http"),
        ("pcap $web | { tcp | count + http }", "pcap $web || { tcp | count + http }"),
        // The ends and all nodes between them are one stage.
        ("pcap $web | { count + http }", "pcap $web | { count || head 1 + http }"),
        ("pcap $web | tcp | { count + head 5 }", "set workers=3; pcap $web | tcp | { count + head 5 }"),
    ];
    for (alone, staged) in rows {
        let whole = lines(&mut open(alone).unwrap()).unwrap();
        let mut stream = open(staged).unwrap();
        let mut given = lines(&mut stream).unwrap();
        assert!(stream.is_over() && stream.next().unwrap().is_none(), "{staged}");
        let mut sorted = whole.clone();
        if staged.contains('{') {
            sorted.sort();
            given.sort();
        }
        assert!(!whole.is_empty() && given == sorted, "{staged}: {} blocks of {}", given.len(), whole.len());
        let finished = stream.close().unwrap();
        assert_eq!(finished.end, End::Input, "{staged}");
        assert!(finished.report.check().is_ok(), "{staged}");
        assert_eq!(finished.report.stages.is_empty(), staged.contains("count ||"), "{staged}");
    }
}

#[test]
fn facts_and_records_cross_stages() {
    for text in ["pcap $web || http", "set workers=2; pcap $web | http"] {
        let mut stream = open(text).unwrap();
        let mut hosts = 0;
        while let Some(block) = stream.next().unwrap() {
            assert!(block.facts().is_some_and(|facts| facts.flow.target_port != 0), "{text}");
            hosts += usize::from(block.record().is_some_and(|row| row.text("http.hostname").is_some()));
        }
        assert!(hosts > 3, "{text}: {hosts}");
    }
}

#[test]
fn what_a_program_pushes_runs_in_stages_behind_it() {
    for text in ["push_frames || head 1k || save $out", "set workers=2; push_frames | { tcp | drop + save $out }"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.pcap").to_str().unwrap().to_string();
        let session = Session::new();
        let mut stream = session.stream(text, &BTreeMap::from([("out".to_string(), out.clone())])).unwrap();
        let mut from = open("pcap $web").unwrap();
        let mut pushed = 0;
        while let Some(block) = from.next().unwrap() {
            stream.push(block.bytes()).unwrap();
            assert!(stream.next().unwrap().is_none(), "{text}");
            pushed += 1;
        }
        stream.end().unwrap();
        assert!(stream.next().unwrap().is_none() && stream.is_over(), "{text}");
        stream.close().unwrap();
        let mut saved = Session::new().stream("pcap $f", &BTreeMap::from([("f".into(), out)])).unwrap();
        assert_eq!(lines(&mut saved).unwrap().len(), pushed, "{text}");
    }
}

#[test]
fn what_a_program_pushes_and_takes_is_in_one_stage() {
    for text in ["push_frames || http", "set workers=2; push_frames | http"] {
        let mut stream = open(text).unwrap();
        let mut from = open("pcap $web").unwrap();
        let mut given = Vec::new();
        while let Some(block) = from.next().unwrap() {
            stream.push_with(block.bytes(), Push { time: Some(block.time()), ..Push::default() }).unwrap();
            given.extend(lines(&mut stream).unwrap());
        }
        stream.end().unwrap();
        given.extend(lines(&mut stream).unwrap());
        let whole = lines(&mut open("pcap $web | http").unwrap()).unwrap();
        assert_eq!(given.concat(), whole.concat(), "{text}");
        let is_told = stream.take_notices().iter().any(|notice| notice.contains("shares nothing"));
        assert_eq!(is_told, text.contains("workers"), "{text}");
    }
}

#[test]
fn a_stream_that_is_dropped_ends_its_threads() {
    let threads = || {
        std::fs::read_dir("/proc/self/task").unwrap().filter(|entry| {
            let name =
                entry.as_ref().map(|entry| std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default());
            name.is_ok_and(|name| name.starts_with("thread 9"))
        })
    };
    // Nine stages, so that only this test has a ninth thread.
    let text = format!("generate {} || head 1000M", "|| head 1000M ".repeat(8));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.pcap");
    let mut stream = open(&text).unwrap();
    assert!(stream.next().unwrap().is_some());
    assert_eq!(threads().count(), 1);
    drop(stream);
    assert_eq!(threads().count(), 0);
    let mut stream = open(&format!("generate || {{ save {} + head 3 }}", file.display())).unwrap();
    assert!(stream.next().unwrap().is_some());
    assert_eq!(stream.close().unwrap().end, End::Stopped);
    let mut saved = Session::new()
        .stream("pcap $f | count", &BTreeMap::from([("f".into(), file.to_str().unwrap().into())]))
        .unwrap();
    assert!(saved.next().unwrap().unwrap().record().unwrap().number("blocks").unwrap() > 0);
}

#[test]
fn a_failure_of_another_stage_is_the_streams() {
    let mut stream = open("generate count=1000 sequence=yes || sequence count=2000 strict=yes").unwrap();
    let error = loop {
        match stream.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("frames are missing"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("lost"), "{error}");
    let mut stream =
        open("{ generate count=1000 sequence=yes | sequence count=2000 strict=yes | drop } ; generate || head 10")
            .unwrap();
    assert!(lines(&mut stream).is_err());
}

#[test]
fn another_thread_ends_the_waiting() {
    let mut stream = open("generate rate=1 count=0 | drop").unwrap();
    let stop = stream.stop_flag();
    let other = std::thread::spawn(move || stop.stop());
    assert!(stream.next().unwrap().is_none());
    other.join().unwrap();
    assert!(stream.is_over());
}

#[test]
fn an_error_comes_after_the_blocks_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.pcap");
    let mut bytes = std::fs::read(capture("web.pcap")).unwrap();
    // The 207th frame claims to be longer than any frame can be.
    let mut at = 24;
    for _ in 0..206 {
        at += 16 + u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    bytes[at + 8..at + 12].copy_from_slice(&[0xff; 4]);
    std::fs::write(&file, &bytes).unwrap();
    let variables = BTreeMap::from([("f".to_string(), file.to_str().unwrap().to_string())]);
    let mut stream = Session::new().stream("pcap $f", &variables).unwrap();
    let mut blocks = 0;
    let error = loop {
        match stream.next() {
            Ok(Some(_)) => blocks += 1,
            Ok(None) => panic!("the capture is damaged"),
            Err(error) => break error,
        }
    };
    assert_eq!(blocks, 206);
    assert!(matches!(&error, Error::System(text) | Error::Input(text) if text.contains("cut.pcap")), "{error}");
    assert_eq!(stream.next().unwrap_err().to_string(), error.to_string(), "it stays");
    assert!(stream.close().is_err());
}

#[test]
fn wrong_requests_are_errors_of_the_session() {
    let rows = [
        ("pcap $web | htp", "htp"),
        ("pcap /nowhere.pcap", "nowhere"),
        ("push_frames | tcp | count; push_bytes | count", "second"),
        ("push_bytes client=here | http", "`here` is no address with a port"),
        ("push_frames link=70000", "16 bits"),
        ("push_bytes | tcp", "takes frame"),
        ("{ pcap $web + pcap $web | tcp } | head 3", "told apart"),
    ];
    for (request, expected) in rows {
        let error = open(request).err().unwrap_or_else(|| panic!("{request} is wrong"));
        let text = error.to_string();
        assert!(text.contains(expected), "{request}: {text}");
        assert_eq!(matches!(error, Error::Request(_)), !request.contains("nowhere"), "{request}: it knows its place");
    }
    let elsewhere = Session::new().prepare("push_bytes | http", &BTreeMap::new());
    assert!(matches!(elsewhere, Err(Error::Request(_))), "only a session that embeds has them");
}

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: b.example\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn bytes_that_are_pushed_are_parsed() {
    let mut stream = open("push_bytes client=10.0.0.1:5 server=[::1]:80 | http").unwrap();
    assert!(stream.next().unwrap().is_none() && !stream.is_over(), "it waits");
    let server = Push { from_server: true, ..Push::default() };
    for round in 0..3 {
        for byte in GET {
            stream.push(&[*byte]).unwrap();
        }
        let block = stream.next().unwrap().expect("a request");
        assert_eq!(block.record().unwrap().text("http.hostname"), Some(&b"b.example"[..]));
        let facts = block.facts().unwrap();
        assert_eq!((facts.flow.source_port, facts.flow.target_port), (5, 80));
        stream.push_with(OK, Push { last: round == 1, ..server }).unwrap();
        let given = lines(&mut stream).unwrap();
        assert!(given.iter().any(|line| line.contains("\"status\":200")), "{given:?}");
        assert!(given.iter().any(|line| line == "hi"), "{given:?}");
    }
    stream.end().unwrap();
    assert!(lines(&mut stream).unwrap().is_empty() && stream.is_over());
    assert_eq!(stream.report().nodes[0].counters.drops.total(), 0);
}

#[test]
fn frames_that_are_pushed_are_those_of_a_capture() {
    let mut from = open("pcap $web").unwrap();
    let mut to = open("push_frames | { http + count }").unwrap();
    let mut given = Vec::new();
    while let Some(block) = from.next().unwrap() {
        to.push_with(block.bytes(), Push { time: Some(block.time()), ..Push::default() }).unwrap();
        given.extend(lines(&mut to).unwrap());
    }
    to.end().unwrap();
    given.extend(lines(&mut to).unwrap());
    let mut whole = lines(&mut open("pcap $web | { http + count }").unwrap()).unwrap();
    given.sort();
    whole.sort();
    assert_eq!(given.concat(), whole.concat());
}

#[test]
fn messages_that_are_pushed_are_whole_or_in_pieces() {
    let mut stream = open("push_messages").unwrap();
    stream.push(b"one").unwrap();
    stream.push_with(b"tw", Push { more: true, ..Push::default() }).unwrap();
    stream.push(b"o").unwrap();
    stream.push_with(b"cut", Push { more: true, ..Push::default() }).unwrap();
    stream.end().unwrap();
    let mut seen = Vec::new();
    while let Some(block) = stream.next().unwrap() {
        let text = String::from_utf8_lossy(block.bytes()).into_owned();
        seen.push((text, block.is_first(), block.is_last(), block.is_cut()));
    }
    let row = |text: &str, first, last, cut| (text.to_string(), first, last, cut);
    let expected = [
        row("one", true, true, false),
        row("tw", true, false, false),
        row("o", false, true, false),
        row("cut", true, false, false),
        row("", false, true, true),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_cannot_be_pushed_is_said() {
    let check = |request: &str, push: Push, expected: &str| {
        let mut stream = open(request).unwrap();
        let error = stream.push_with(b"x", push).unwrap_err().to_string();
        assert!(error.contains(expected), "{request}: {error}");
    };
    let [server, more, last] = [
        Push { from_server: true, ..Push::default() },
        Push { more: true, ..Push::default() },
        Push { last: true, ..Push::default() },
    ];
    check("pcap $web", Push::default(), "takes no blocks");
    check("push_frames", server, "takes frame");
    check("push_frames", more, "only a message");
    check("push_bytes", more, "only a message");
    check("push_messages", last, "only a byte stream");

    let mut stream = open("push_frames").unwrap();
    assert!(stream.push(&vec![0; 1 << 24]).unwrap_err().to_string().contains("at most"));
    stream.end().unwrap();
    assert!(stream.push(b"x").unwrap_err().to_string().contains("after the end"));
    assert!(stream.next().unwrap().is_none());
    assert!(stream.push(b"x").unwrap_err().to_string().contains("is over"));
    assert!(open("pcap $web").unwrap().end().is_err());

    let mut stream = open("push_bytes").unwrap();
    let mebibytes = vec![0; 1 << 20];
    let mut pushed = 0;
    let error = loop {
        match stream.push(&mebibytes) {
            Ok(()) => pushed += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(pushed == 64 && error.contains("before you push more"), "{pushed}: {error}");
    assert_eq!(lines(&mut stream).unwrap().len(), 64);
    stream.push(&mebibytes).unwrap();
}

#[test]
fn who_wants_no_more_ends_the_request() {
    let mut stream = open("push_messages | head 1").unwrap();
    stream.push(b"one").unwrap();
    stream.push(b"two").unwrap();
    assert_eq!(lines(&mut stream).unwrap(), ["one"]);
    assert!(stream.is_over());
    assert!(stream.push(b"three").unwrap_err().to_string().contains("is over"));
}

/// Builds an example: for a single test cargo does not build examples. With it the program, as testkit does.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "cli", "--package", "streamline", "--example", name]);
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Command::new(profile.join("examples").join(name))
}

#[test]
fn the_example_prints_messages() {
    let output = example("messages").arg(capture("web.pcap")).output().unwrap();
    let printed_ones = String::from_utf8(output.stdout).unwrap();
    let mut expected = Vec::new();
    for line in printed("pcap $web | http | json").lines().filter(|line| line.contains("\"status\":")) {
        let field = |name: &str| {
            let value = line.split_once(&format!("\"{name}\":"))?.1;
            value.split([',', '}']).next().map(|value| value.trim_matches('"').to_string())
        };
        let host = field("hostname").unwrap_or_else(|| "-".into());
        expected.push(format!("{host} {} {}", field("status").unwrap(), field("length").unwrap()));
    }
    assert!(expected.len() > 5);
    assert_eq!(printed_ones.lines().collect::<Vec<_>>(), expected);
    let refused = example("messages").arg("/nowhere.pcap").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/nowhere.pcap"), "{refused:?}");
}

#[test]
fn the_example_pushes_bytes() {
    let mut child = example("push").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for _ in 0..2 {
        input.write_all(GET).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "GET /a\nGET /a\n");
}
