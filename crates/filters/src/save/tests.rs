//! `save` as its users see it: frames in, files out, read back with `pcap`.

use super::*;
use crate::pcap;
use packet::LinkType;
use packet::pcap_file::{write_header, write_record_header};
use packet::pcapng::{Description, Direction, PacketBlock, Section, write_interface, write_packet, write_section};
use std::fs;
use testkit::{Chain, Outcome};

/// The parts of a frame that tests compare.
type Seen = (u64, Vec<u8>, u32, Flags, buffer::Interface);

fn seen(outcome: &Outcome) -> Vec<Seen> {
    let frames = outcome.blocks.iter();
    frames
        .map(|block| {
            let interface = block.interface.as_ref().unwrap();
            let (time, wire, flags) = (block.descriptor.time, block.descriptor.wire(), block.descriptor.flags());
            (time, block.bytes.clone(), wire, flags, (**interface).clone())
        })
        .collect()
}

fn read(path: &Path) -> Vec<Seen> {
    let outcome = Chain::source(&pcap::KIND, &[("file", path.to_str().unwrap())]).run();
    assert_eq!((&outcome.failure, outcome.notices.is_empty()), (&None, true));
    seen(&outcome)
}

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Frames of 100 bytes, one each of these seconds.
fn frames(seconds: &[u64]) -> Vec<(u64, Vec<u8>)> {
    seconds.iter().map(|second| (second * 1_000_000_000, vec![*second as u8; 100])).collect()
}

fn save(seconds: &[u64], file: &Path, params: &[(&str, &str)]) -> Outcome {
    let params = [&[("file", file.to_str().unwrap())], params].concat();
    Chain::frames(1, &frames(seconds)).then(&KIND, &params).run()
}

fn refusal(params: &[(&str, &str)]) -> ParamError {
    Chain::frames(1, &[]).then(&KIND, params).refusal().unwrap()
}

#[test]
fn the_name_decides_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, params: &[(&str, &str)], magic: u32| {
        let path = folder.path().join(name);
        assert_eq!(save(&[1, 2], &path, params).failure, None);
        assert_eq!(fs::read(&path).unwrap()[..4], magic.to_le_bytes(), "{name}");
        assert_eq!(read(&path).len(), 2, "{name}");
        fs::remove_file(path).unwrap();
    };
    check("a.pcap", &[], 0xa1b2_c3d4);
    check("a.CAP", &[("precision", "ns")], 0xa1b2_3c4d);
    check("a.pcapng", &[], 0x0a0d_0d0a);
    check("a.ntar", &[], 0x0a0d_0d0a);
    check("a", &[], 0x0a0d_0d0a);
    check("a", &[("format", "pcap")], 0xa1b2_c3d4);
    check("a.pcap", &[("format", "pcapng")], 0x0a0d_0d0a);
}

/// Classic pcap keeps the precision of its input. If the request lowers it, a notice says so once.
#[test]
fn times_are_as_precise_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let classic = |name: &str, resolution: Resolution| {
        let mut file = Vec::new();
        write_header(&mut file, LinkType::ETHERNET, 100, resolution);
        for n in 0..200 {
            write_record_header(&mut file, 1_700_000_000_123_456_789 + n, 4, 4, resolution);
            file.extend_from_slice(b"data");
        }
        fs::write(path(name), file).unwrap();
    };
    classic("us.pcap", Resolution::Microseconds);
    classic("ns.pcap", Resolution::Nanoseconds);
    let mut coarse = Vec::new();
    write_section(&mut coarse, &Section::default());
    // An interface without if_tsresol has microseconds.
    coarse.extend_from_slice(&[1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0]);
    let packet = PacketBlock { time_ns: 5, wire_len: 4, data: b"data", ..PacketBlock::default() };
    write_packet(&mut coarse, &packet);
    fs::write(path("us.pcapng"), coarse).unwrap();
    const US: u32 = 0xa1b2_c3d4;
    const NS: u32 = 0xa1b2_3c4d;
    let check = |from: &str, params: &[(&str, &str)], magic: u32, told: usize| {
        let to = path("out.pcap");
        let params = [&[("file", &to[..]), ("overwrite", "yes")], params].concat();
        let outcome = Chain::source(&pcap::KIND, &[("file", &path(from))]).then(&KIND, &params).run();
        assert_eq!(outcome.failure, None);
        assert_eq!(fs::read(&to).unwrap()[..4], magic.to_le_bytes(), "{from}");
        assert_eq!(outcome.notices.len(), told, "{from}: {:?}", outcome.notices);
        assert!(outcome.notices.iter().all(|text| text.contains("are microseconds, and the input has nanoseconds")));
    };
    check("us.pcap", &[], US, 0);
    check("ns.pcap", &[], NS, 0);
    check("us.pcapng", &[], US, 0);
    check("us.pcap", &[("precision", "ns")], NS, 0);
    check("ns.pcap", &[("precision", "us")], US, 1);
    // pcapng has nanoseconds; read back, times have the same precision.
    let params = [("file", &path("ns.pcapng")[..])];
    Chain::source(&pcap::KIND, &[("file", &path("ns.pcap"))]).then(&KIND, &params).run();
    check("ns.pcapng", &[], NS, 0);
    // Frames of several captures; the first capture has microseconds.
    fs::create_dir(path("both")).unwrap();
    fs::copy(path("us.pcap"), path("both/1")).unwrap();
    fs::copy(path("ns.pcap"), path("both/2")).unwrap();
    check("both", &[], US, 1);
    assert_eq!(read(Path::new(&path("out.pcap"))).len(), 400);
    // A device gives nanoseconds, but the request did not ask for them: no notice.
    let outcome = Chain::frames(1, &[(1_700_000_000_123_456_789, vec![0; 60])]);
    assert_eq!(outcome.then(&KIND, &[("file", &path("live.pcap"))]).run().notices.len(), 0);
    assert_eq!(fs::read(path("live.pcap")).unwrap()[..4], US.to_le_bytes());
}

/// Two interfaces, a snap length, a direction and times to the nanosecond.
fn rich_capture() -> Vec<u8> {
    let mut file = Vec::new();
    write_section(&mut file, &Section::default());
    for (link, name, description, snap_len) in
        [(LinkType::ETHERNET, "eth0", "the uplink", 96), (LinkType::LINUX_SLL2, "", "", 0)]
    {
        write_interface(&mut file, &Description { link, snap_len, name, description, filter: "" });
    }
    for n in 0..300u32 {
        let packet = PacketBlock {
            interface: n % 2,
            time_ns: 1_700_000_000_123_456_789 + u64::from(n),
            wire_len: n * 2,
            data: &vec![n as u8; n as usize % 97],
            direction: (n % 3 == 0).then_some(Direction::Outbound),
            ..PacketBlock::default()
        };
        write_packet(&mut file, &packet);
    }
    file
}

#[test]
fn pcapng_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two, three) = (folder.path().join("1"), folder.path().join("2"), folder.path().join("3"));
    fs::write(&one, rich_capture()).unwrap();
    for (from, to) in [(&one, &two), (&two, &three)] {
        let params = [("file", to.to_str().unwrap())];
        let outcome = Chain::source(&pcap::KIND, &[("file", from.to_str().unwrap())]).then(&KIND, &params).run();
        assert_eq!((outcome.counters("save").blocks_taken, outcome.failure), (300, None));
    }
    assert_eq!(read(&one), read(&two));
    assert_eq!(fs::read(&two).unwrap(), fs::read(&three).unwrap(), "written again, it is the same to the byte");
    // The last two blocks are statistics: 150 frames of each interface.
    let bytes = fs::read(&two).unwrap();
    for (interface, block) in bytes[bytes.len() - 80..].chunks(40).enumerate() {
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(20), word(24)], [5, 40, interface as u32, 8 | 8 << 16, 150]);
    }
}

#[test]
fn standard_output_gets_what_a_file_gets() {
    let folder = tempfile::tempdir().unwrap();
    for (params, name) in [(&[][..], "a.pcap"), (&[("format", "pcapng")], "a.pcapng")] {
        let path = folder.path().join(name);
        assert_eq!(save(&[1, 2, 3], &path, &[]).failure, None);
        let outcome = save(&[1, 2, 3], Path::new("-"), params);
        assert_eq!(outcome.stdout_bytes, fs::read(path).unwrap());
    }
}

#[test]
fn no_frames_make_an_empty_capture() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.pcapng"] {
        let path = folder.path().join(name);
        assert_eq!(save(&[], &path, &[]).failure, None);
        assert_eq!(read(&path), []);
    }
    assert_eq!(save(&[], &folder.path().join("b"), &[("rotate-size", "1k")]).failure, None);
    assert_eq!(names(folder.path()), ["a.pcap", "a.pcapng"]);
}

#[test]
fn refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    fs::write(path("there"), b"precious").unwrap();
    let check = |params: &[(&str, &str)], system: bool, expected: &str| {
        let error = refusal(params);
        assert!(error.system == system && error.message.contains(expected), "{}", error.message);
    };
    check(&[("file", &path("there"))], true, "/there exists");
    check(&[("file", &path(""))], true, " is a folder");
    check(&[("file", &path("no/x"))], true, "/no/x: No such file or directory");
    check(&[("file", &path("there/x"))], true, "/there is no folder");
    check(&[("file", &path("x")), ("precision", "us")], false, "precision is for format=pcap");
    check(&[("file", "-"), ("rotate-size", "1M")], false, "a series");
    check(&[("file", &path("x")), ("rotate-keep", "3")], false, "only one file");
    check(&[("file", &path("x")), ("rotate-time", "0")], false, "more than 0");
    assert_eq!(fs::read(path("there")).unwrap(), b"precious");
}

#[test]
fn the_name_of_another_format_is_refused() {
    let check = |name: &str| {
        let mut params = testkit::chain::params(&KIND, &[("file", name), ("format", "pcap")]);
        KIND.complete.unwrap()(&mut params).map_err(|error| error.message)
    };
    for name in ["x.pcap", "x.pcapng", "x.CAP", "x.ntar", "x", "-"] {
        assert_eq!(check(name), Ok(()));
    }
    assert_eq!(
        check("x.pcap.gz").unwrap_err(),
        "x.pcap.gz is the name of a compressed file, and the filter writes none"
    );
    assert_eq!(check("x.json").unwrap_err(), "x.json is the name of JSON, and the filter writes none");
}

#[test]
fn what_exists_is_replaced_only_when_asked_and_only_when_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    fs::write(&path, b"old").unwrap();
    assert_eq!(save(&[1], &path, &[("overwrite", "yes")]).failure, None);
    assert_eq!(read(&path).len(), 1);
    // Read and replace a file in one run: the old file stays whole until the new one is complete.
    let params = [("file", path.to_str().unwrap()), ("overwrite", "yes")];
    assert_eq!(Chain::source(&pcap::KIND, &params[..1]).then(&KIND, &params).run().failure, None);
    assert_eq!(read(&path).len(), 1);
    let half = folder.path().join("b.pcap.part");
    fs::write(&half, b"half").unwrap();
    let failure = save(&[1], &folder.path().join("b.pcap"), &[]).failure.unwrap().to_string();
    assert!(failure.contains("b.pcap.part exists"), "{failure}");
    assert_eq!(fs::read(half).unwrap(), b"half");
}

#[test]
fn a_full_disk_is_one_clear_line() {
    let failure = save(&[1, 2], Path::new("/dev/full"), &[]).failure;
    assert_eq!(failure, Some(Failure::System("cannot write /dev/full: No space left on device".into())));
}

#[test]
fn devices_and_pipes_are_written_as_they_are() {
    assert_eq!(save(&[1, 2], Path::new("/dev/null"), &[]).failure, None);
    assert!(!Path::new("/dev/null.part").exists());
}

#[test]
fn classic_pcap_has_one_link_type() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to.pcap"));
    fs::write(&from, rich_capture()).unwrap();
    let params = [("file", to.to_str().unwrap())];
    let outcome = Chain::source(&pcap::KIND, &[("file", from.to_str().unwrap())]).then(&KIND, &params).run();
    let Some(Failure::Request(text)) = outcome.failure else { panic!("{:?}", outcome.failure) };
    assert!(text.contains("EN10MB") && text.contains("use format=pcapng"), "{text}");
    assert_eq!(names(folder.path()), ["from"], "nothing is left that would stand in the way of a better try");
}

/// A second file's frames may be longer than the first one's snap length. The header with it may be on disk or still in
/// the buffer.
#[test]
fn the_snap_length_grows_with_the_frames() {
    for short_frames in [1, 5000] {
        let folder = tempfile::tempdir().unwrap();
        for (name, snap_len, count) in [("1", 96, short_frames), ("2", 1000, 1)] {
            let mut file = Vec::new();
            write_header(&mut file, LinkType::ETHERNET, snap_len, Resolution::Nanoseconds);
            for _ in 0..count {
                write_record_header(&mut file, 5, snap_len, 1500, Resolution::Nanoseconds);
                file.resize(file.len() + snap_len as usize, 7);
            }
            fs::write(folder.path().join(name), file).unwrap();
        }
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("out.pcap");
        let source = Chain::source(&pcap::KIND, &[("file", folder.path().to_str().unwrap())]);
        let outcome = source.then(&KIND, &[("file", path.to_str().unwrap())]).run();
        assert_eq!(outcome.failure, None);
        let lengths: Vec<_> = read(&path).iter().map(|frame| frame.1.len()).collect();
        assert_eq!((lengths.len(), lengths[0], lengths.last()), (short_frames + 1, 96, Some(&1000)));
    }
}

/// Checks the seconds of the frames in each file of a series, in order of the file names.
fn series(seconds: &[u64], params: &[(&str, &str)], expected: &[(&str, &[u64])]) {
    let folder = tempfile::tempdir().unwrap();
    let outcome = save(seconds, &folder.path().join("x.pcap"), params);
    assert_eq!((outcome.failure, outcome.notices), (None, Vec::new()));
    let found: Vec<_> = names(folder.path())
        .into_iter()
        .map(|name| {
            let frames = read(&folder.path().join(&name));
            (name, frames.iter().map(|frame| frame.0 / 1_000_000_000).collect::<Vec<_>>())
        })
        .collect();
    let found: Vec<_> = found.iter().map(|(name, seconds)| (&name[..], &seconds[..])).collect();
    assert_eq!(found, expected);
}

#[test]
fn series_of_files() {
    series(
        &[1, 2, 3, 4, 5],
        // The limit is reached with 24 + 116 + 116 bytes.
        &[("rotate-size", "256")],
        &[
            ("x_00001_19700101000001.pcap", &[1, 2]),
            ("x_00002_19700101000003.pcap", &[3, 4]),
            ("x_00003_19700101000005.pcap", &[5]),
        ],
    );
    series(
        &[58, 59, 60, 61, 59, 125, 300],
        &[("rotate-time", "1min")],
        &[
            ("x_00001_19700101000058.pcap", &[58, 59]),
            ("x_00002_19700101000100.pcap", &[60, 61, 59]),
            ("x_00003_19700101000205.pcap", &[125]),
            ("x_00004_19700101000500.pcap", &[300]),
        ],
    );
    series(
        &[1, 2, 3, 4],
        &[("rotate-size", "1"), ("rotate-time", "1h"), ("rotate-keep", "2")],
        &[("x_00003_19700101000003.pcap", &[3]), ("x_00004_19700101000004.pcap", &[4])],
    );
}

#[test]
fn a_series_does_not_overwrite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(folder.path().join("x_00002_19700101000002"), b"precious").unwrap();
    let failure = save(&[1, 2, 3], &path, &[("rotate-size", "1")]).failure.unwrap().to_string();
    assert!(failure.ends_with("x_00002_19700101000002 exists; overwrite=yes replaces it"), "{failure}");
    assert_eq!(names(folder.path()), ["x_00001_19700101000001", "x_00002_19700101000002"]);
    assert_eq!(save(&[1, 2], &path, &[("rotate-size", "1"), ("overwrite", "yes")]).failure, None);
    assert_eq!(read(&folder.path().join("x_00002_19700101000002")).len(), 1);
}

#[test]
fn a_terminal_gets_no_capture() {
    let check = |eager: bool, expected: Option<&str>| {
        let stdout = Output::new(Box::new(std::io::sink()), eager);
        let compiler = std::sync::Arc::new(NoCompiler);
        let env = Env {
            input: Types::of(&[Type::Frame]),
            stdout,
            compiler,
            schemas: [].into(),
            wait: filter::Wait::default(),
            latency: None,
            make_ring: [].into(),
            daemon: None,
        };
        let refused = make(&testkit::chain::params(&KIND, &[("file", "-")]), &env).err();
        assert_eq!(refused.and_then(|error| error.help).as_deref(), expected);
    };
    check(true, Some("redirect it: `... | save -' > x.pcap`"));
    check(false, None);
}

/// A compiler stub: these tests compile no filter.
struct NoCompiler;

impl program::compile::Compile for NoCompiler {
    fn compile(
        &self,
        _: &str,
        _: u16,
        _: u32,
    ) -> Result<Vec<program::cbpf::Instruction>, program::compile::CompileError> {
        Err(program::compile::CompileError::unavailable("none"))
    }

    fn describe(&self) -> String {
        "none".into()
    }
}
