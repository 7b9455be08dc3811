//! `pcap` as its users see it: files in, frames and failures out.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use packet::LinkType;
use packet::capture::ByteOrder;
use packet::pcap_file::{Resolution, write_header, write_record_header};
use packet::pcapng::{self, Description, Direction, PacketBlock, Section};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use testkit::{Chain, Outcome};

/// A folder with one file.
struct Given {
    folder: tempfile::TempDir,
    path: PathBuf,
}

fn given(bytes: &[u8]) -> Given {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    fs::write(&path, bytes).unwrap();
    Given { folder, path }
}

impl Given {
    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn add(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    fn folder(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }
}

fn read(params: &[(&str, &str)]) -> Outcome {
    Chain::source(&KIND, params).run()
}

/// The parts of a frame that tests compare: time, bytes, length on the wire, flags, link type.
type Seen = (u64, Vec<u8>, u32, Flags, Option<u16>);

fn seen(outcome: &Outcome) -> Vec<Seen> {
    let frames = outcome.blocks.iter();
    frames
        .map(|block| {
            let interface = block.interface.as_ref().unwrap();
            let Descriptor { time, .. } = block.descriptor;
            (time, block.bytes.clone(), block.descriptor.wire(), block.descriptor.flags(), interface.link_type)
        })
        .collect()
}

const FRAMES: [(u64, &[u8], u32); 4] =
    [(1_000_000_001, b"first", 5), (2_000_000_002, b"", 0), (3_999_999_999, b"third frame", 1500), (4, b"x", 1)];

/// A classic capture of [`FRAMES`].
fn classic(resolution: Resolution) -> Vec<u8> {
    let mut file = Vec::new();
    write_header(&mut file, LinkType::ETHERNET, 1000, resolution);
    for (time, bytes, wire) in FRAMES {
        write_record_header(&mut file, time, bytes.len() as u32, wire, resolution);
        file.extend_from_slice(bytes);
    }
    file
}

/// Turns a classic capture's headers into big-endian ones.
fn swapped(mut file: Vec<u8>) -> Vec<u8> {
    let swap = |file: &mut Vec<u8>, at: usize, bytes: usize| file[at..at + bytes].reverse();
    for (at, bytes) in [(0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)] {
        swap(&mut file, at, bytes);
    }
    let mut at = 24;
    for (_, bytes, _) in FRAMES {
        (0..4).for_each(|word| swap(&mut file, at + 4 * word, 4));
        at += 16 + bytes.len();
    }
    file
}

/// A pcapng capture of [`FRAMES`]: two interfaces, twice, in two sections.
fn next_generation() -> Vec<u8> {
    let mut file = Vec::new();
    for section in 0..2 {
        pcapng::write_section(&mut file, &Section { application: "test", ..Section::default() });
        for (link, name) in [(LinkType::ETHERNET, "eth0"), (LinkType::RAW, if section == 0 { "tun0" } else { "tun1" })]
        {
            let interface = Description { link, snap_len: 96, name, description: "a cable", filter: "" };
            pcapng::write_interface(&mut file, &interface);
        }
        for (index, (time_ns, data, wire_len)) in FRAMES.into_iter().enumerate() {
            let direction = (index == 2).then_some(Direction::Outbound);
            let interface = index as u32 % 2;
            let packet = PacketBlock { interface, time_ns, wire_len, data, direction, ..PacketBlock::default() };
            pcapng::write_packet(&mut file, &packet);
        }
    }
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Reads the bytes in every possible way and checks that all give the same result.
fn check_every_way(bytes: &[u8], expected: &[Seen], failure: Option<&str>) {
    let middle = bytes.len() / 2;
    let members = [gzip(&bytes[..middle]), gzip(&bytes[middle..])].concat();
    for (way, bytes, map) in [("map", bytes, "yes"), ("read", bytes, "no"), ("gzip", &members[..], "yes")] {
        let file = given(bytes);
        let outcome = read(&[("file", file.path()), ("map", map)]);
        assert_eq!(seen(&outcome), expected, "{way}");
        let text = outcome.failure.map(|failure| failure.to_string());
        assert_eq!(text.as_deref().map(|text| text.split_once("/x.pcap: ").unwrap().1), failure, "{way}");
    }
}

fn expected(fraction_ns: u64) -> Vec<Seen> {
    let frame = |(time, bytes, wire): (u64, &[u8], u32)| {
        let flags = if wire > bytes.len() as u32 { Flags::TRUNCATED } else { Flags::NONE };
        (time / fraction_ns * fraction_ns, bytes.to_vec(), wire, flags, Some(1))
    };
    FRAMES.map(frame).to_vec()
}

#[test]
fn classic_captures_of_every_sort() {
    check_every_way(&classic(Resolution::Nanoseconds), &expected(1), None);
    check_every_way(&classic(Resolution::Microseconds), &expected(1000), None);
    check_every_way(&swapped(classic(Resolution::Nanoseconds)), &expected(1), None);
    check_every_way(&swapped(classic(Resolution::Microseconds)), &expected(1000), None);
}

#[test]
fn kuznetzovs_format() {
    let plain = classic(Resolution::Microseconds);
    let mut file = plain[..24].to_vec();
    file[..4].copy_from_slice(&0xa1b2_cd34_u32.to_le_bytes());
    let mut at = 24;
    for (_, bytes, _) in FRAMES {
        file.extend_from_slice(&plain[at..at + 16]);
        file.extend_from_slice(&[9; 8]);
        file.extend_from_slice(bytes);
        at += 16 + bytes.len();
    }
    check_every_way(&file, &expected(1000), None);
}

/// `memory=yes` gives the same as the files; frame times continue in later rounds.
#[test]
fn from_memory_it_is_the_same_and_goes_on() {
    for whole in [classic(Resolution::Nanoseconds), next_generation(), gzip(&next_generation())] {
        let file = given(&whole);
        let once = seen(&read(&[("file", file.path())]));
        for map in ["yes", "no"] {
            let memory = |rounds| read(&[("file", file.path()), ("map", map), ("memory", "yes"), ("loop", rounds)]);
            assert_eq!(seen(&memory("1")), once);
            let thrice = memory("3");
            assert_eq!((thrice.blocks.len(), &thrice.failure), (3 * once.len(), &None));
            let times = || once.iter().map(|(time, ..)| *time);
            let span = times().max().unwrap() - times().min().unwrap();
            let round_ns = span + span / (once.len() as u64 - 1);
            for (at, (block, (time, bytes, ..))) in thrice.blocks.iter().zip(once.iter().cycle()).enumerate() {
                let later = (at / once.len()) as u64 * round_ns;
                assert_eq!((block.descriptor.time, &block.bytes), (time + later, bytes), "{at}");
            }
        }
    }
    let outcome = read(&[("file", given(&next_generation()).path()), ("memory", "yes")]);
    let interfaces: Vec<_> =
        outcome.blocks.iter().map(|block| block.interface.as_ref().unwrap().name.clone()).collect();
    let names = ["eth0", "tun0", "eth0", "tun0", "eth0", "tun1", "eth0", "tun1"];
    assert!(interfaces.iter().map(|name| name.as_deref().unwrap()).eq(names));
}

#[test]
fn more_frames_than_a_pull_holds_from_memory() {
    let mut file = Vec::new();
    write_header(&mut file, LinkType::ETHERNET, 0, Resolution::Nanoseconds);
    for n in 0..700u32 {
        write_record_header(&mut file, n.into(), 4, 4, Resolution::Nanoseconds);
        file.extend_from_slice(&n.to_le_bytes());
    }
    let outcome = read(&[("file", given(&file).path()), ("memory", "yes"), ("loop", "3")]);
    let numbers = outcome.blocks.iter().map(|block| u32::from_le_bytes(*block.bytes.first_chunk().unwrap()));
    assert!(numbers.eq((0..700).cycle().take(2100)));
}

#[test]
fn what_cannot_be_read_whole_into_memory_fails_after_what_can() {
    let mut damaged = classic(Resolution::Nanoseconds);
    let third = 24 + 16 + 5 + 16;
    damaged[third + 8..third + 12].copy_from_slice(&300_000_u32.to_le_bytes());
    let outcome = read(&[("file", given(&damaged).path()), ("memory", "yes"), ("loop", "2")]);
    assert_eq!(outcome.blocks.len(), 4, "two frames, twice");
    assert!(outcome.failure.unwrap().to_string().contains("262144 are possible at most"));
    let empty =
        read(&[("file", given(&classic(Resolution::Nanoseconds)[..24]).path()), ("memory", "yes"), ("loop", "0")]);
    assert_eq!((empty.blocks.len(), empty.failure), (0, None), "nothing, however often");
    let check = |params: &[(&str, &str)], key: &str| {
        let file = given(&classic(Resolution::Nanoseconds));
        let params = [&[("file", file.path())], params].concat();
        assert_eq!(Chain::source(&KIND, &params).refusal().unwrap().key, Some(key));
    };
    check(&[("memory", "yes"), ("follow", "yes")], "memory");
    check(&[("loop", "2")], "loop");
}

#[test]
fn pcapng_keeps_its_interfaces_apart() {
    let file = given(&next_generation());
    for map in ["yes", "no"] {
        let outcome = read(&[("file", file.path()), ("map", map)]);
        assert_eq!((outcome.blocks.len(), &outcome.failure), (8, &None));
        let interfaces: Vec<_> = outcome.blocks.iter().map(|block| block.interface.as_ref().unwrap()).collect();
        let rows: Vec<_> =
            interfaces.iter().map(|one| (one.link_type.unwrap(), one.name.as_deref().unwrap())).collect();
        let (eth0, tun0, tun1) = ((1, "eth0"), (101, "tun0"), (101, "tun1"));
        assert_eq!(rows, [eth0, tun0, eth0, tun0, eth0, tun1, eth0, tun1]);
        assert!(interfaces.iter().all(|one| one.snap_len == 96 && one.description.as_deref() == Some("a cable")));
        assert_eq!(outcome.blocks[0].descriptor.ring, outcome.blocks[4].descriptor.ring, "described again, the same");
        let outbound: Vec<_> = outcome.blocks.iter().map(|block| block.descriptor.has(Flags::OUTBOUND)).collect();
        assert_eq!(outbound, [false, false, true, false, false, false, true, false]);
    }
}

#[test]
fn records_over_the_snap_length_are_cut_to_it() {
    let mut file = Vec::new();
    write_header(&mut file, LinkType::ETHERNET, 4, Resolution::Nanoseconds);
    write_record_header(&mut file, 7, 6, 6, Resolution::Nanoseconds);
    file.extend_from_slice(b"abcdef");
    check_every_way(&file, &[(7, b"abcd".to_vec(), 6, Flags::TRUNCATED, Some(1))], None);
}

#[test]
fn absurd_lengths_end_a_capture_with_a_failure() {
    let mut file = classic(Resolution::Nanoseconds);
    let third = 24 + 16 + 5 + 16;
    file[third + 8..third + 12].copy_from_slice(&300_000_u32.to_le_bytes());
    let failure = "byte 61: a packet says that 300000 bytes of it were captured, and 262144 are possible at most; what \
                   precedes it was read (the file is damaged there: copy it again from where it came, or mend it, for \
                   instance with pcapfix)";
    check_every_way(&file, &expected(1)[..2], Some(failure));
}

#[test]
fn lengths_that_a_descriptor_cannot_say_are_counted() {
    let mut file = Vec::new();
    // D-Bus messages may be long.
    write_header(&mut file, LinkType(231), 0, Resolution::Nanoseconds);
    write_record_header(&mut file, 1, 17 << 20, 17 << 20, Resolution::Nanoseconds);
    file.resize(file.len() + (17 << 20), 5);
    write_record_header(&mut file, 2, 1, u32::MAX, Resolution::Nanoseconds);
    file.push(6);
    let file = given(&file);
    let outcome = read(&[("file", file.path())]);
    let lengths: Vec<_> = outcome.blocks.iter().map(|block| (block.bytes.len(), block.descriptor.wire())).collect();
    assert_eq!(lengths, [((1 << 24) - 1, (1 << 24) - 1), (1, (1 << 24) - 1)]);
    let events = &outcome.counters("pcap").events;
    assert_eq!((events.get("frames cut to 16 MiB"), events.get("lengths on the wire over 16 MiB")), (1, 2));
    let streamed = read(&[("file", file.path()), ("map", "no")]);
    assert!(streamed.failure.unwrap().to_string().contains("too long to be read as it comes"));
}

#[test]
fn more_frames_than_a_batch_and_a_chunk_hold() {
    let mut file = Vec::new();
    write_header(&mut file, LinkType::ETHERNET, 0, Resolution::Nanoseconds);
    let frames: Vec<Seen> = (0..2000u32)
        .map(|n| {
            let bytes = vec![n as u8; (n as usize * 7) % 1500];
            write_record_header(&mut file, n.into(), bytes.len() as u32, bytes.len() as u32, Resolution::Nanoseconds);
            file.extend_from_slice(&bytes);
            let wire = bytes.len() as u32;
            (n.into(), bytes, wire, Flags::NONE, Some(1))
        })
        .collect();
    check_every_way(&file, &frames, None);
}

/// A capture cut at any byte gives the whole frames before the cut, in every way of reading.
#[test]
fn cut_at_every_byte() {
    for whole in [classic(Resolution::Nanoseconds), next_generation()] {
        let all = seen(&read(&[("file", given(&whole).path())]));
        let mut most = 0;
        for len in 24..whole.len() {
            let file = given(&whole[..len]);
            let [mapped, streamed] = ["yes", "no"].map(|map| {
                let outcome = read(&[("file", file.path()), ("map", map)]);
                assert_eq!(outcome.failure, None, "{len}");
                assert!(outcome.notices.iter().all(|text| text.contains("the file ends inside a record")), "{len}");
                (seen(&outcome), outcome.notices)
            });
            assert_eq!(mapped, streamed, "{len}");
            assert_eq!(mapped.0, all[..mapped.0.len()], "{len}");
            assert!(mapped.0.len() >= most, "{len}");
            most = mapped.0.len();
        }
        assert_eq!(most, all.len() - 1);
    }
}

/// With any byte changed, every way of reading gives the same frames or failure, and ends.
#[test]
fn every_byte_changed() {
    for whole in [classic(Resolution::Microseconds), next_generation()] {
        for at in 0..whole.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= change;
                let file = given(&changed);
                let [mapped, streamed] = ["yes", "no"].map(|map| {
                    let chain = Chain::source(&KIND, &[("file", file.path()), ("map", map)]);
                    let refusal = chain.refusal().map(|error| error.message);
                    let outcome = refusal.is_none().then(|| chain.run());
                    (refusal, outcome.map(|outcome| (seen(&outcome), outcome.failure, outcome.notices)))
                });
                assert_eq!(mapped, streamed, "{at} {change}");
            }
        }
    }
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
    let info = info.block_checksums(true).content_checksum(true);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

type Compress = fn(&[u8]) -> Vec<u8>;

const COMPRESSIONS: [(&str, Compress); 5] =
    [("gzip", gzip), ("zstd", zstd), ("xz", xz), ("bzip2", bzip2), ("lz4", lz4)];

/// A capture of this many records of random bytes.
fn random(records: u32) -> Vec<u8> {
    let mut whole = Vec::new();
    write_header(&mut whole, LinkType::ETHERNET, 0, Resolution::Nanoseconds);
    for n in 0..records {
        write_record_header(&mut whole, n.into(), 4, 4, Resolution::Nanoseconds);
        whole.extend_from_slice(&n.wrapping_mul(2_654_435_761).to_le_bytes());
    }
    whole
}

#[test]
fn compressed_captures_of_any_number_of_members() {
    let whole = random(30_000);
    let expected = seen(&read(&[("file", given(&whole).path())]));
    for (name, packed) in COMPRESSIONS {
        let (front, back) = whole.split_at(whole.len() / 3);
        for bytes in [packed(&whole), [packed(front), packed(b""), packed(back)].concat()] {
            let outcome = read(&[("file", given(&bytes).path())]);
            assert_eq!((outcome.failure.clone(), &outcome.notices[..]), (None, &[][..]), "{name}");
            assert!(seen(&outcome) == expected, "{name}");
        }
    }
}

#[test]
fn frames_to_be_skipped_are_skipped() {
    let whole = classic(Resolution::Nanoseconds);
    let skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc";
    for bytes in [[&skipped[..], &zstd(&whole), skipped].concat(), [&lz4(&whole)[..], skipped].concat()] {
        let outcome = read(&[("file", given(&bytes).path())]);
        assert_eq!((seen(&outcome), outcome.notices), (expected(1), vec![]));
    }
}

#[test]
fn compressed_data_that_ends_early_is_a_warning_after_what_was_read() {
    let whole = random(30_000);
    for (name, packed) in COMPRESSIONS {
        let packed = packed(&whole);
        for len in [packed.len() * 2 / 3, packed.len() - 1] {
            let outcome = read(&[("file", given(&packed[..len]).path())]);
            assert_eq!(outcome.failure, None, "{name} {len}");
            let [notice] = &outcome.notices[..] else { panic!("{name} {len}: {:?}", outcome.notices) };
            assert!(notice.ends_with("compressed data ends early; what precedes it was read"), "{name}: {notice}");
            assert!(outcome.blocks.len() > 1000, "{name} {len}: {}", outcome.blocks.len());
            assert_eq!(outcome.report.nodes[0].counters.left_out.count, 1);
        }
    }
}

#[test]
fn damaged_compressed_data_is_a_warning_after_what_was_read() {
    let whole = random(30_000);
    for (name, packed) in COMPRESSIONS {
        let mut packed = packed(&whole);
        let middle = packed.len() * 2 / 3;
        packed[middle..middle + 40].fill(0xff);
        let outcome = read(&[("file", given(&packed).path())]);
        assert_eq!(outcome.failure, None, "{name}");
        let [notice] = &outcome.notices[..] else { panic!("{name}: {:?}", outcome.notices) };
        assert!(notice.ends_with("compressed data is damaged; what precedes it was read"), "{name}: {notice}");
        assert!(outcome.blocks.len() > 1000, "{name}: {}", outcome.blocks.len());
    }
}

/// Each byte in turn: never a panic, and never silence where bytes are missing.
#[test]
fn no_damaged_byte_is_silent() {
    let whole = classic(Resolution::Nanoseconds);
    for (name, packed) in COMPRESSIONS {
        let packed = packed(&whole);
        let kind = packet::sniff::sniff(&packed).unwrap();
        for at in 4..packed.len() {
            for bytes in [packed[..at].to_vec(), [&packed[..at], &[!packed[at]], &packed[at + 1..]].concat()] {
                let mut out = Vec::new();
                let read = unpack::reader(kind, std::io::Cursor::new(bytes)).read_to_end(&mut out);
                assert!(read.is_err() || out == whole, "{name} {at} of {}", packed.len());
            }
        }
    }
}

#[test]
fn windows_larger_than_is_read_are_a_warning() {
    let file = given(&classic(Resolution::Nanoseconds));
    // A frame of Zstandard with a window of 16 MiB, and a block of xz with a dictionary of 128 MiB.
    file.add("z.zst", b"\x28\xb5\x2f\xfd\x00\x70\x01\0\0");
    let mut options = lzma_rust2::XzOptions::default();
    options.lzma_options.dict_size = 128 << 20;
    let mut large = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    large.write_all(&classic(Resolution::Nanoseconds)).unwrap();
    file.add("z.xz", &large.finish().unwrap());
    let outcome = read(&[("file", file.folder())]);
    assert_eq!((outcome.blocks.len(), outcome.failure), (4, None));
    for (notice, name) in outcome.notices.iter().zip(["z.xz", "z.zst"]) {
        assert!(
            notice.ends_with(&format!("{name}: its compressed data needs a larger window than is read")),
            "{notice}"
        );
    }
    assert_eq!(outcome.notices.len(), 2);
}

#[test]
fn what_is_compressed_may_be_no_capture() {
    for (_, packed) in COMPRESSIONS {
        let inside = given(&packed(b"this is no capture"));
        let failure = read(&[("file", inside.path())]).failure.unwrap().to_string();
        assert!(failure.contains("no capture among 1 file in "), "{failure}");
    }
}

/// Errors reported before the run begins.
#[test]
fn refused_before_the_run() {
    let check = |bytes: &[u8], expected: &str| {
        let refusal = Chain::source(&KIND, &[("file", given(bytes).path())]).refusal().unwrap();
        assert!(refusal.system && refusal.message.ends_with(expected), "{}", refusal.message);
    };
    check(b"", "/x.pcap is empty: not a capture");
    check(
        b"PK\x03\x04\0\0\0\0",
        "/x.pcap is not a capture (pcap, pcapng, or these compressed): begins with 50 4b 03 04 00 00 00 00, looks like \
         zip",
    );
    let refusal = |name: &str| Chain::source(&KIND, &[("file", name)]).refusal().unwrap().message;
    assert_eq!(refusal("/nonexistent/x.pcap"), "cannot open /nonexistent/x.pcap: No such file or directory");
    assert_eq!(refusal("/nonexistent/*.pcap"), "no file matches /nonexistent/*.pcap");
    let file = given(b"text");
    assert_eq!(refusal(file.folder()), format!("no captures in {}", file.folder()));
    let twice = Chain::source(&KIND, &[("file", "-"), ("file", "-")]).refusal().unwrap();
    assert!(!twice.system && twice.key == Some("file"));
    let nameless = Chain::source(&KIND, &[("file", file.path()), ("file", "")]).refusal().unwrap();
    assert_eq!((nameless.key, &nameless.message[..]), (Some("file"), "a name is empty"));
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let file = given(b"not this");
    file.add("a.pcap", &classic(Resolution::Nanoseconds));
    file.add("z.pcap", &classic(Resolution::Nanoseconds)[..50]);
    file.add("e.pcap", b"");
    let pattern = format!("{}/*.pcap", file.folder());
    let outcome = read(&[("file", &pattern)]);
    assert_eq!(outcome.blocks.len(), 5);
    assert_eq!(outcome.failure, None);
    let notices = outcome.notices.join("\n");
    assert!(notices.contains("/e.pcap is empty") && notices.contains("/x.pcap is not a capture"), "{notices}");
    assert!(notices.contains("/z.pcap: byte 45: the file ends inside a record, after 5 of 16 bytes"), "{notices}");
    // A name and a folder follow one rule.
    let names = ["x.pcap", "a.pcap", "z.pcap", "e.pcap"].map(|name| format!("{}/{name}", file.folder()));
    let named: Vec<_> = names.iter().map(|name| ("file", &name[..])).collect();
    for outcome in [outcome, read(&[("file", file.folder())]), read(&named)] {
        assert_eq!((outcome.blocks.len(), outcome.failure), (5, None));
        let counters = outcome.report.nodes[0].counters.clone();
        assert_eq!((counters.left_out.count, counters.left_out.lines.len()), (2, 2));
        assert_eq!(counters.events.get("captures cut at their end"), 1);
    }
}

#[test]
fn a_folder_that_cannot_be_looked_into_does_not_hide_the_rest() {
    use std::os::unix::fs::PermissionsExt;
    let file = given(&classic(Resolution::Nanoseconds));
    let closed = file.folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(&closed).is_ok() {
        eprintln!("skipped: whoever runs this may look into every folder");
        return;
    }
    for name in [file.folder().to_string(), format!("{}/*", file.folder())] {
        let outcome = read(&[("file", &name)]);
        let expected = format!("cannot open {}: Permission denied", closed.display());
        assert_eq!((outcome.blocks.len(), outcome.failure), (4, None));
        assert_eq!(outcome.notices, [expected]);
    }
    fs::remove_file(&file.path).unwrap();
    let refusal = Chain::source(&KIND, &[("file", file.folder())]).refusal().unwrap();
    assert!(refusal.message.ends_with("/closed: Permission denied"), "{}", refusal.message);
}

/// The content of a compressed file is known only when it is read.
#[test]
fn a_folder_without_any_capture_is_a_failure() {
    let file = given(&gzip(b"this is no capture"));
    file.add("y.gz", &gzip(b"nor is this"));
    file.add("z.txt", b"text");
    let outcome = read(&[("file", file.folder())]);
    let expected = format!("no capture among 3 files in {}", file.folder());
    assert_eq!((outcome.blocks.len(), outcome.failure), (0, Some(Failure::System(expected))));
    file.add("zz.pcap", &classic(Resolution::Nanoseconds));
    assert_eq!(read(&[("file", file.folder())]).failure, None);
}

#[test]
fn a_capture_behind_another_is_told_from_damage() {
    for resolution in [Resolution::Nanoseconds, Resolution::Microseconds] {
        let first = classic(resolution);
        let (len, fraction) = (first.len(), if resolution == Resolution::Nanoseconds { 1 } else { 1000 });
        for second in [classic(resolution), swapped(classic(resolution)), next_generation()] {
            let failure = format!("byte {len}: another capture begins here; what precedes it was read");
            check_every_way(&[&first[..], &second].concat(), &expected(fraction), Some(&failure));
            let failure = "byte 24: another capture begins here; what precedes it was read";
            check_every_way(&[&first[..24], &second].concat(), &[], Some(failure));
        }
    }
    let (first, second) = (next_generation(), classic(Resolution::Nanoseconds));
    let failure = read(&[("file", given(&[&first[..], &second].concat()).path())]).failure.unwrap().to_string();
    assert!(failure.contains(&format!("byte {}: another capture begins here", first.len())), "{failure}");
}

/// Damage of pcapng is explained, also when reading begins at a later section.
#[test]
fn damage_of_pcapng_says_what_where_and_what_to_do() {
    let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let mut start = Vec::new();
    pcapng::write_section(&mut start, &Section::default());
    let interface = words(&[1, 20, 1, 0, 20]);
    let packet = words(&[6, 36, 0, 0, 5, 4, 4, 0x6161_6161, 36]);
    let check = |bytes: &[u8], at: usize, expected: &str| {
        let file = [&start[..], bytes].concat();
        let failure = read(&[("file", given(&file).path())]).failure.unwrap().to_string();
        let expected = format!("x.pcap: byte {}: {expected}", start.len() + at);
        assert!(failure.contains(&expected), "{failure}, not {expected}");
    };
    let many = interface.repeat(65_537);
    check(
        &many,
        65_536 * 20,
        "a section describes more than 65536 interfaces; what precedes it was read (write it without",
    );
    let length = "a block of type 0x6 (enhanced packet) says that it is";
    let behind = [&interface[..], &packet].concat();
    for (bytes, expected) in [
        (words(&[6, 13, 0, 0]), format!("{length} 13 bytes long, and a length is a multiple of 4")),
        (words(&[6, 0, 0, 0]), format!("{length} 0 bytes long, and 12 is the least that it can be")),
        (words(&[6, 16, 0, 16]), format!("{length} 16 bytes long, and 32 is the least that it can be")),
        (words(&[6, u32::MAX - 3, 0]), format!("{length} 4294967292 bytes long, and 16777216 is the most")),
        (words(&[6, 16, 0, 20]), "a block says at its start that it is 16 bytes long, and at its end 20".into()),
        (
            [&packet[..8], &words(&[3]), &packet[12..]].concat(),
            "a packet is of interface 3, and its section describes 1 (from 0 on)".into(),
        ),
    ] {
        check(&[&behind[..], &bytes].concat(), behind.len(), &expected);
        check(
            &[&behind[..], &behind, &bytes].concat(),
            2 * behind.len(),
            &expected.replace("describes 1", "describes 2"),
        );
        let help = "; what precedes it was read (the file is damaged there: copy it again";
        let failure = read(&[("file", given(&[&start[..], &behind, &bytes].concat()).path())]).failure.unwrap();
        assert!(failure.to_string().contains(help), "{failure}");
    }
}

/// A source that the test pulls itself.
struct Hand {
    source: Pcap,
    rings: buffer::BlockTable,
    streams: StreamTable,
    counters: filter::Counters,
    out: Vec<Descriptor>,
    notices: Vec<String>,
    own: buffer::ViewId,
}

impl Hand {
    fn new(params: &[(&str, &str)]) -> Hand {
        let source = Pcap::new(&testkit::chain::params(&KIND, params)).unwrap();
        let mut rings = buffer::BlockTable::new();
        let segment = rings.add_append_ring();
        let own = rings.add_view(segment, buffer::Interface::default()).unwrap();
        Hand {
            source,
            rings,
            streams: StreamTable::new(),
            counters: filter::Counters::default(),
            out: Vec::new(),
            notices: Vec::new(),
            own,
        }
    }

    /// Pulls once; returns also the bytes of the frames.
    fn pull(&mut self) -> (Vec<Vec<u8>>, Result<Pull, String>) {
        let pulled = self.source.pull(&mut Context {
            rings: &mut self.rings,
            streams: &mut self.streams,
            out: &mut self.out,
            counters: &mut self.counters,
            marks: &mut filter::Marks::default(),
            own: self.own,
            now: 0,
            exclusive: true,
            wanted: filter::Wanted::ALL,
            wake: &mut u64::MAX.clone(),
            notices: &mut self.notices,
            order: &mut filter::Order::default(),
            stop: &base::atomic::StopFlag::new(),
        });
        let came = self.out.drain(..).map(|block| self.rings.bytes(&block).to_vec()).collect();
        (came, pulled.map_err(|failure| failure.to_string()))
    }

    /// Pulls until there is no data; returns the bytes of the frames and the last result.
    fn drain(&mut self) -> (Vec<Vec<u8>>, Result<Pull, String>) {
        let mut all = Vec::new();
        loop {
            let (came, pulled) = self.pull();
            all.extend(came);
            if pulled != Ok(Pull::Ready) {
                return (all, pulled);
            }
        }
    }

    fn waits_after(&mut self, expected: &[&[u8]]) {
        let (all, end) = self.drain();
        assert_eq!(all, expected);
        assert!(matches!(end, Ok(Pull::Idle(_))), "{end:?}");
    }
}

#[test]
fn follow_waits_for_headers_records_and_their_rests() {
    for map in ["yes", "no"] {
        let bytes = classic(Resolution::Nanoseconds);
        let file = given(b"");
        let mut growing = OpenOptions::new().append(true).open(&file.path).unwrap();
        let mut hand = Hand::new(&[("file", file.path()), ("follow", "yes"), ("map", map)]);
        hand.waits_after(&[]);
        growing.write_all(&bytes[..10]).unwrap();
        hand.waits_after(&[]);
        growing.write_all(&bytes[10..50]).unwrap();
        hand.waits_after(&[b"first"]);
        hand.waits_after(&[]);
        growing.write_all(&bytes[50..]).unwrap();
        hand.waits_after(&[b"", b"third frame", b"x"]);
    }
}

#[test]
fn follow_goes_on_with_new_files_of_a_folder() {
    let file = given(&classic(Resolution::Nanoseconds)[..45]);
    let mut hand = Hand::new(&[("file", file.folder()), ("follow", "yes")]);
    hand.waits_after(&[b"first"]);
    file.add("y.pcap.part", &classic(Resolution::Nanoseconds));
    for _ in 0..30 {
        hand.waits_after(&[]);
    }
    fs::rename(file.folder.path().join("y.pcap.part"), file.folder.path().join("y.pcap")).unwrap();
    let all: Vec<_> = (0..30).flat_map(|_| hand.drain().0).collect();
    assert_eq!(all, [&b"first"[..], b"", b"third frame", b"x"]);
    assert_eq!(hand.notices, [] as [&str; 0]);
}

#[test]
fn a_file_cut_while_it_is_mapped_gives_no_frames_of_zeroes() {
    let mut bytes = Vec::new();
    write_header(&mut bytes, LinkType::ETHERNET, 0, Resolution::Nanoseconds);
    for n in 0..1000u64 {
        write_record_header(&mut bytes, n, 84, 84, Resolution::Nanoseconds);
        bytes.extend_from_slice(&[7; 84]);
    }
    // Cuts: right behind the frames of the first pull, on a page border, in between, and in the header.
    for cut in [24 + 64 * 100, 8192, 20_000, 10] {
        let file = given(&bytes);
        let mut hand = Hand::new(&[("file", file.path())]);
        let mut shorten = Some(File::options().write(true).open(&file.path).unwrap());
        let mut frames = Vec::new();
        let end = loop {
            let mut wake = u64::MAX;
            let pulled = hand.source.pull(&mut Context {
                rings: &mut hand.rings,
                streams: &mut hand.streams,
                out: &mut hand.out,
                counters: &mut hand.counters,
                marks: &mut filter::Marks::default(),
                own: hand.own,
                now: 0,
                exclusive: true,
                wanted: filter::Wanted::ALL,
                wake: &mut wake,
                notices: &mut hand.notices,
                order: &mut filter::Order::default(),
                stop: &base::atomic::StopFlag::new(),
            });
            frames.append(&mut hand.out);
            if let (64.., Some(file)) = (frames.len(), &shorten) {
                file.set_len(cut).unwrap();
                shorten = None;
            }
            match pulled {
                Ok(Pull::Ready) => {}
                end => break end,
            }
        };
        let end = end.unwrap_err().to_string();
        assert!(end.ends_with(&format!("it was cut at byte {cut} while it was read")), "{end}");
        let whole = (cut.saturating_sub(24) / 100).max(64);
        assert_eq!(frames.len() as u64, whole, "{cut}");
        assert!(frames.iter().all(|block| block.len == 84));
    }
}

#[test]
fn progress_ends_at_the_whole() {
    let file = given(&classic(Resolution::Nanoseconds));
    file.add("y.pcap", &next_generation());
    let mut hand = Hand::new(&[("file", file.folder())]);
    let all = classic(Resolution::Nanoseconds).len() as u64 + next_generation().len() as u64;
    assert_eq!(hand.source.progress(), Some(Progress { done: 0, all: Some(all) }));
    assert_eq!(hand.drain().1, Ok(Pull::End));
    assert_eq!(hand.source.progress(), Some(Progress { done: all, all: Some(all) }));
}

/// The first file, and the gzip file after it, have grown since their lengths were added up.
#[test]
fn progress_never_goes_back() {
    let records = |count: usize| {
        let mut file = classic(Resolution::Nanoseconds);
        let all = file[24..].repeat(count);
        file.truncate(24);
        [file, all].concat()
    };
    let (long, packed) = (records(3000), gzip(&records(3000)));
    let file = given(&long[..long.len() / 3]);
    file.add("y.pcap.gz", &packed[..packed.len() / 2]);
    file.add("z.pcap", &classic(Resolution::Nanoseconds));
    let mut hand = Hand::new(&[("file", file.folder())]);
    file.add("x.pcap", &long);
    file.add("y.pcap.gz", &packed);
    let (mut last, mut steps) = (0, 0);
    loop {
        let (_, end) = hand.pull();
        let Progress { done, all } = hand.source.progress().unwrap();
        let all = all.unwrap();
        assert!(last <= done && done <= all, "{last} of {all}, then {done}");
        steps += u64::from(last < done);
        last = done;
        if end != Ok(Pull::Ready) {
            assert_eq!((end, done), (Ok(Pull::End), all));
            break;
        }
    }
    assert!(steps > 5, "{steps} steps");
}

#[test]
fn a_named_pipe_is_read_to_its_end() {
    let file = given(b"");
    let pipe = file.folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no mkfifo");
        return;
    }
    let bytes = swapped(classic(Resolution::Nanoseconds));
    let path = pipe.clone();
    let writing = std::thread::spawn(move || {
        let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
        bytes.chunks(7).for_each(|part| pipe.write_all(part).unwrap());
    });
    let outcome = read(&[("file", pipe.to_str().unwrap())]);
    writing.join().unwrap();
    assert_eq!((seen(&outcome), outcome.failure), (expected(1), None));
}

#[test]
fn byte_orders_do_differ() {
    let header = |bytes: &[u8]| packet::pcap_file::Header::parse(bytes).unwrap();
    let plain = classic(Resolution::Nanoseconds);
    assert_eq!((header(&plain).order, header(&swapped(plain.clone())).order), (ByteOrder::Little, ByteOrder::Big));
}
