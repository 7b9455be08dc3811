//! `http` decodes bodies where a filter behind it reads them, and only there.

use std::collections::BTreeMap;
use streamline::{Output, Session, StopFlag};

/// Bytes that `http` gives of a bundled capture with coded bodies.
fn given(request: &str) -> u64 {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/browse.pcap");
    let request = format!("pcap {capture} | {request}");
    let session = Session::with_output(Output::new(Box::new(std::io::sink()), false));
    let mut job = session.prepare(&request, &BTreeMap::new()).unwrap();
    let (outcome, report) = job.run_to_end(&StopFlag::new(), &mut |_| {});
    outcome.unwrap();
    let http = report.nodes.iter().find(|node| node.label.starts_with("http")).unwrap();
    http.counters.bytes_out()
}

#[test]
fn bodies_are_decoded_for_filters_that_read_them() {
    let (coded, decoded) = (given("http decode=no | count"), given("http | count"));
    assert!(coded < decoded, "{coded} bytes, {decoded} decoded");
    let where_ = r#"http | where "http.status = 200""#;
    for unread in ["http | fields http.status", "http | by http.hostname", &format!("{where_} | fields http.status")] {
        // The records of heads have no other fields either.
        assert!(given(unread) < coded, "{unread}");
    }
    for read in ["http | json", "http | { fields http.status + count }", &format!("{where_} | count")] {
        assert_eq!(given(read), decoded, "{read}");
    }
}
