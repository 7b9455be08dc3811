//! Tests of generated frames: lengths, checksums, varying fields, and the end of the source. A later filter cannot spoil the
//! template.

use super::*;
use packet::frame;
use std::io::Write;
use testkit::Chain;
use testkit::chain::Outcome;
use testkit::packets::wrong_checksums;

fn made(given: &[(&str, &str)]) -> Outcome {
    let outcome = Chain::source(&KIND, given).run();
    assert_eq!(outcome.failure, None, "{given:?}");
    outcome
}

fn frames(given: &[(&str, &str)]) -> Vec<Vec<u8>> {
    made(given).blocks.into_iter().map(|block| block.bytes).collect()
}

#[test]
fn every_frame_is_right_whatever_varies() {
    let protocols = ["udp", "tcp", "icmp"];
    let sizes = ["128", "90..1514", "random:90..300"];
    let addresses: [&[(&str, &str)]; 5] = [
        &[],
        &[("src", "random:10.0.0.0/8"), ("dst", "192.0.2.1..192.0.2.255"), ("ttl", "1")],
        &[("src", "2001:db8::1")],
        &[("src", "random:2001:db8::/32"), ("dst", "2001:db8::fff0..2001:db8::1:ff")],
        &[("vlan", "0..4095"), ("src-mac", "random:02:00:00:00:00:00..02:ff:ff:ff:ff:ff"), ("fill", "random")],
    ];
    for protocol in protocols {
        for size in sizes {
            for fields in addresses {
                let ports: &[_] =
                    if protocol == "icmp" { &[] } else { &[("src-port", "random:1..65535"), ("dst-port", "0..9")] };
                let given = [&[("protocol", protocol), ("size", size), ("count", "700")], fields, ports].concat();
                let frames = frames(&given);
                assert_eq!(frames.len(), 700, "{given:?}");
                for frame in &frames {
                    let read = frame::parse(LinkType::ETHERNET, frame, frame.len() as u32).unwrap();
                    assert_eq!(read.payload_end as usize, frame.len(), "{given:?}");
                    assert_eq!(
                        wrong_checksums(LinkType::ETHERNET, frame, frame.len() as u32),
                        Some(vec![]),
                        "{given:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn without_a_number_and_with_nothing_that_varies_they_are_right_too() {
    for size in ["42", "60", "61", "1514", "65549"] {
        let frames = frames(&[("size", size), ("count", "600"), ("sequence", "no")]);
        let first = &frames[0];
        assert!(frames.len() == 600 && frames.iter().all(|frame| frame == first), "{size}");
        assert_eq!(wrong_checksums(LinkType::ETHERNET, first, first.len() as u32), Some(vec![]), "{size}");
    }
}

/// A UDP checksum of 0 is sent as all ones. One of 65,536 ports in a row has that checksum.
#[test]
fn a_checksum_of_udp_is_never_0() {
    let frames = frames(&[("size", "42"), ("sequence", "no"), ("dst-port", "0..65535"), ("count", "65536")]);
    let all_ones = frames.iter().filter(|frame| frame[40..42] == [0xff, 0xff]).count();
    assert!(frames.iter().all(|frame| frame[40..42] != [0, 0]) && all_ones >= 1);
}

#[test]
fn fields_go_on_by_themselves_and_numbers_from_0() {
    let frames = frames(&[("count", "1000"), ("dst-port", "5..7"), ("src", "10.0.0.0/30"), ("vlan", "9")]);
    for (number, frame) in frames.iter().enumerate() {
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        assert_eq!((word(12), word(14), word(16)), (0x8100, 9, 0x0800));
        assert_eq!((usize::from(frame[33]), usize::from(word(40))), (number % 4, 5 + number % 3));
        assert_eq!(&frame[46..50], MAGIC.to_be_bytes());
        assert_eq!(frame[50..54], (number as u32).to_be_bytes());
    }
    assert_eq!(frames.iter().map(Vec::len).max(), Some(64));
}

#[test]
fn as_many_as_were_asked_for_and_not_one_more() {
    for count in [1, 63, 64, 255, 256, 257, 1000] {
        assert_eq!(frames(&[("count", &count.to_string())]).len(), count);
        assert_eq!(frames(&[("count", &count.to_string()), ("rate", "1M"), ("burst", "7")]).len(), count);
    }
}

#[test]
fn a_duration_ends_it_and_a_pace_is_kept_until_then() {
    let began = std::time::Instant::now();
    assert_eq!(frames(&[("duration", "50ms"), ("rate", "10k")]).len(), 500);
    assert!(began.elapsed().as_millis() >= 50, "{:?}", began.elapsed());
    assert!(!frames(&[("duration", "1ms")]).is_empty(), "as fast as can be");
    let file = capture(&[0, 1_000_000]);
    assert_eq!(frames(&[("file", file.path().to_str().unwrap()), ("loop", "0"), ("duration", "10ms")]).len(), 10);
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let numbered_out =
        |seed| frames(&[("count", "500"), ("src", "random:10.0.0.0/8"), ("seed", seed), ("sequence", "no")]);
    assert_eq!(numbered_out("7"), numbered_out("7"));
    assert_ne!(numbered_out("7"), numbered_out("8"));
}

/// Overwrites every block, and holds some blocks until the run ends.
struct Spoiler {
    held: Vec<(Descriptor, Vec<u8>)>,
    hold: bool,
}

static SPOILER: Kind = Kind::new("spoiler", "writes into every block", |params, _| {
    Ok(Instance::filter(Spoiler { held: Vec::new(), hold: params.flag("hold") }))
})
.params(&[Param::new("hold", ParamType::Flag, "holds blocks as they came").default("no")])
.touches(Parts::DATA, Parts::DATA)
.mode(Mode::Serial);

impl Filter for Spoiler {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if self.hold && self.held.len() < 20 {
            let block = batch.block(5);
            self.held.push((cx.rings.hold(block).expect("a block that is there"), cx.rings.bytes(block).to_vec()));
        }
        for place in filter::batch::places(batch.live()) {
            let mut spoilt = *batch.block(place);
            cx.edit(&mut spoilt, Default::default()).expect("a block that is there").fill(0xee);
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        for (block, bytes) in self.held.drain(..) {
            assert_eq!(cx.rings.bytes(&block), bytes, "held blocks stay what they are");
            cx.rings.release(&block);
        }
        Ok(Status::Done)
    }
}

/// The filter may write into the frames in place, as their only owner, but not into the template.
#[test]
fn who_writes_into_frames_does_not_write_into_the_template() {
    for given in [&[("sequence", "no")][..], &[("sequence", "yes")], &[("sequence", "yes"), ("size", "imix")]] {
        let given = [given, &[("count", "3000")]].concat();
        for hold in ["no", "yes"] {
            let outcome = Chain::source(&KIND, &given).then(&SPOILER, &[("hold", hold)]).run();
            assert_eq!(outcome.blocks.len(), 3000);
            for block in &outcome.blocks {
                let wrong = wrong_checksums(LinkType::ETHERNET, &block.bytes, block.bytes.len() as u32);
                assert_eq!(wrong, Some(vec![]), "{given:?} {hold}");
            }
        }
    }
}

#[test]
fn refusals() {
    let check = |given: &[(&str, &str)], key: &str, message: &str, help: &str| {
        let error = Chain::source(&KIND, given).refusal().unwrap_or_else(|| panic!("{given:?} is taken"));
        assert_eq!((error.key, error.message.as_str()), (Some(key), message), "{given:?}");
        assert!(error.help.as_deref().unwrap_or_default().contains(help), "{error:?}");
    };
    let cannot = "a frame of 60 bytes cannot be made of this";
    check(&[("size", "60"), ("protocol", "tcp")], "size", cannot, "sequence=no");
    check(
        &[("size", "60"), ("src", "2001:db8::1"), ("protocol", "tcp"), ("sequence", "no")],
        "size",
        cannot,
        "take 74 bytes",
    );
    check(&[("size", "65550")], "size", "a frame of 65550 bytes cannot be made of this", "65549 bytes");
    check(&[("size", "much")], "size", "`much` is not a size in bytes", "1000..1999");
    check(&[("src", "10.0.0.1"), ("dst", "2001:db8::1")], "src", "`10.0.0.1` is not an IPv6 address", "2001:db8::1");
    check(&[("protocol", "icmp"), ("dst-port", "9")], "dst-port", "ICMP has no ports", "");
    check(&[("rate", "0")], "rate", "0 would never send anything", "");
    check(&[("rate", "1k"), ("bits", "1M")], "bits", "`rate` is given, too: one of them decides", "");
    check(&[("burst", "4")], "burst", "bursts need a rate", "rate=100k");
    check(&[("ttl", "256")], "ttl", "256 is more than 255", "");
    check(&[("loop", "2")], "loop", "frames made without a file cannot begin again", "file=");
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/web.pcap");
    let given = "frames of a capture are given as they are, whatever `vlan` says";
    check(&[("file", capture), ("vlan", "3")], "vlan", given, "rewrite");
    let missing = Chain::source(&KIND, &[("file", "/nonexistent.pcap")]).refusal().unwrap();
    assert!(missing.system, "{missing:?}");
}

/// A capture with frames at these times, ns.
fn capture(times: &[u64]) -> tempfile::NamedTempFile {
    use packet::pcap_file::{Resolution, write_header, write_record_header};
    let mut bytes = Vec::new();
    write_header(&mut bytes, LinkType::ETHERNET, 0, Resolution::Nanoseconds);
    for time in times {
        write_record_header(&mut bytes, *time, 60, 60, Resolution::Nanoseconds);
        bytes.extend([(*time / 1_000_000) as u8; 60]);
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    file
}

#[test]
fn a_capture_is_given_at_its_own_pace_or_at_another() {
    const MS: u64 = 1_000_000;
    let file = capture(&[5 * MS, 25 * MS, 25 * MS, 65 * MS]);
    let path = file.path().to_str().unwrap();
    let began = std::time::Instant::now();
    let outcome = made(&[("file", path), ("loop", "2")]);
    // Twice 60 ms, with their average gap of 20 ms between.
    assert!(began.elapsed().as_millis() >= 140, "{:?}", began.elapsed());
    let bytes: Vec<u8> = outcome.blocks.iter().map(|block| block.bytes[0]).collect();
    assert_eq!(bytes, [5, 25, 25, 65, 5, 25, 25, 65]);
    let times: Vec<u64> = outcome.blocks.iter().map(|block| block.descriptor.time).collect();
    let now = clock::real();
    assert!(times.is_sorted() && now - times[0] < 60_000 * MS, "they have the time at which they are given");
    assert!(times[3] - times[0] >= 59 * MS);
    for (given, count) in
        [(&[("rate", "1M"), ("loop", "0"), ("count", "9")][..], 9), (&[("bits", "100M"), ("loop", "3")], 12)]
    {
        let given = [&[("file", path)], given].concat();
        assert_eq!(frames(&given).len(), count, "{given:?}");
    }
}
