//! Reads every shared capture, mapped and streamed. Compares counts with those of four other programs.

use crate::shared_captures;
use filters::{count, pcap};
use serde_json::Value;
use std::collections::BTreeSet;
use testkit::{Chain, shared};

/// The packet count that all tools agree on, if each read the whole file (capinfos does not know some link types).
fn agreed(expected: &Value) -> Option<u64> {
    let counts = expected["packets"].as_object()?.iter();
    let counts: BTreeSet<_> = counts
        .filter(|(peer, count)| *peer != "capinfos" || !count.is_null())
        .map(|(_, count)| count.as_u64())
        .collect();
    let errors = expected["format"]["errors"].as_array().is_some_and(|errors| !errors.is_empty());
    match counts.into_iter().collect::<Vec<_>>()[..] {
        [count] if !errors => count,
        _ => None,
    }
}

/// The count of the independent reader, which stops where the file is damaged or cut.
fn independent(expected: &Value) -> Option<u64> {
    expected["packets"]["ref"].as_u64()
}

/// Bytes of all records; `None` for files with records longer than their own snap length: those are cut to it.
fn expected_bytes(expected: &Value) -> Option<u64> {
    let format = &expected["format"];
    let (bytes, packets) = (format["bytes"].as_u64()?, format["packets"].as_u64()?);
    let cut = format["snaplen"].as_u64().is_some_and(|snap_len| bytes > packets.saturating_mul(snap_len));
    (!cut).then_some(bytes)
}

#[test]
fn packet_counts_of_every_shared_capture() {
    let folder = shared::data();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for file in shared_captures::sorted(&folder.join("expected")) {
        let expected: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let capture = folder.join("captures").join(file.file_stem().unwrap());
        for map in ["yes", "no"] {
            let chain = Chain::source(&pcap::KIND, &[("file", capture.to_str().unwrap()), ("map", map)]);
            let refused = chain.refusal();
            let name = capture.file_name().unwrap().to_str().unwrap();
            let Some(refusal) = refused else {
                let outcome = chain.then(&count::KIND, &[]).run();
                let found = outcome.counters("count").blocks_in;
                let sound = agreed(&expected);
                if sound.is_some() && (outcome.failure.is_some() || !outcome.notices.is_empty()) {
                    wrong.push(format!("{name}: {:?} {:?}", outcome.failure, outcome.notices));
                }
                let bytes = outcome.counters("count").bytes_in;
                if sound.is_some() && expected_bytes(&expected).is_some_and(|expected| expected != bytes) {
                    wrong.push(format!("{name} (map={map}): {bytes} bytes, expected {}", expected["format"]["bytes"]));
                }
                if let Some(count) = sound.or_else(|| independent(&expected)).filter(|count| *count != found) {
                    wrong.push(format!("{name} (map={map}): {found}, expected {count}"));
                }
                checked += usize::from(sound.is_some());
                continue;
            };
            if agreed(&expected).is_some() {
                wrong.push(format!("{name}: {}", refusal.message));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= shared::part(2 * 150), "{checked} captures were checked");
}
