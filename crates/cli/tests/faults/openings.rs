//! A system without resources: each file descriptor and each map that opening a capture takes is refused in turn. The
//! failure is reported and leaves nothing behind, other readers go on, and the next opening works.

use crate::bed::{Bed, Held, Witnesses, set_limit, times, until};
use capture::client::Client;
use capture::{Attachment, By, CaptureError, CaptureRequest, Mode};
use rustix::process::{Resource, Rlimit};
use testkit::packets::to_port;

/// More descriptors than any opening takes, beyond those that the daemon has.
const FILES: u64 = 80;

/// Opens a capture under a limit, and lifts the limit. Whether it fails or not, it leaves no trace.
fn open_within(
    bed: &Bed,
    client: &Client,
    asked: &CaptureRequest,
    limit: &Limit,
    before: &Held,
) -> Result<(), CaptureError> {
    limit.set(bed);
    let outcome = client.open(asked);
    Limit::none().set(bed);
    let held = outcome.as_ref().ok().map(|_| bed.objects());
    let outcome = outcome.map(|attachment: Attachment| {
        if asked.promiscuous {
            assert!(bed.pair.near.link().is_promiscuous(), "granted, and not as was wished");
        }
        assert!(attachment.map().is_ok(), "what was granted can be read");
    });
    bed.await_held(before);
    if let Some(held) = held {
        bed.await_gone(&held);
    }
    until("the device is as it was", || {
        let link = bed.pair.near.link();
        (link.promiscuity, link.xdp) == (0, None)
    });
    outcome
}

struct Limit(Resource, Option<u64>);

impl Limit {
    fn none() -> Limit {
        Limit(Resource::Nofile, None)
    }

    fn set(&self, bed: &Bed) {
        let usual = |resource| rustix::process::getrlimit(resource);
        for resource in [Resource::Nofile, Resource::As] {
            let mut limit: Rlimit = usual(resource);
            if resource == self.0 && self.1.is_some() {
                limit.current = self.1;
            }
            set_limit(bed.daemon.pid(), resource, limit);
        }
    }
}

/// The number after the daemon's highest file descriptor.
fn files_end(bed: &Bed) -> u64 {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", bed.daemon.pid().as_raw_nonzero())).expect("it is alive");
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    numbers.max().map_or(0, |number| number + 1)
}

fn addresses(bed: &Bed) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", bed.daemon.pid().as_raw_nonzero())).expect("as above");
    text.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("it begins with pages") * 4096
}

/// The ways to open a capture.
fn all_asked(bed: &Bed) -> Vec<CaptureRequest> {
    let plain = bed.capture_request();
    let of = |by| CaptureRequest { by, promiscuous: true, last_ns: 1_000_000_000, ..plain.clone() };
    vec![of(By::Kernel), of(By::PacketSocket), of(By::WhatIsBest)]
}

/// The same, and to consume a device's packets: then no other reader may read it meanwhile.
fn all_requests(bed: &Bed) -> Vec<CaptureRequest> {
    let alone = CaptureRequest { mode: Mode::Consume, promiscuous: true, ..bed.capture_request() };
    all_asked(bed).into_iter().chain([alone]).collect()
}

const POLICY: Option<&str> = Some("");

#[test]
fn whichever_file_is_refused_nothing_is_left_and_the_next_opening_works() {
    let Some(bed) = Bed::new(POLICY) else { return };
    let client = bed.client();
    let before = bed.held(1);
    for asked in all_requests(&bed) {
        let end = files_end(&bed);
        let (mut refused, mut granted) = (0, 0);
        for limit in 3..end + FILES {
            match open_within(&bed, &client, &asked, &Limit(Resource::Nofile, Some(limit)), &before) {
                Ok(()) => granted += 1,
                Err(error) => {
                    assert!(!error.text.is_empty());
                    refused += 1;
                }
            }
            // Go on for a few more: some openings take more descriptors than others.
            if granted == 3 {
                break;
            }
        }
        assert!(refused > 8 && granted == 3, "{:?} {:?}: {refused} refused, {granted} granted", asked.mode, asked.by);
        open_within(&bed, &client, &asked, &Limit::none(), &before).expect("there is enough of everything");
    }
}

#[test]
fn whichever_memory_is_refused_nothing_is_left_and_the_next_opening_works() {
    let Some(bed) = Bed::new(POLICY) else { return };
    let client = bed.client();
    let before = bed.held(1);
    // Memory that threads allocate once and keep must exist before addresses are counted.
    for asked in all_requests(&bed) {
        client.open(&asked).map(drop).expect("there is enough of everything");
    }
    bed.await_held(&before);
    for asked in all_requests(&bed) {
        let asked = CaptureRequest { ring_bytes: 64 << 20, ..asked };
        let (mut refused, mut granted) = (0, 0);
        for megabytes in (1..400).step_by(400 / times("STREAMLINE_CYCLES", 40).clamp(1, 400)) {
            let limit = Limit(Resource::As, Some(addresses(&bed) + (megabytes << 20)));
            match open_within(&bed, &client, &asked, &limit, &before) {
                Ok(()) => granted += 1,
                Err(_) => refused += 1,
            }
            if granted == 2 {
                break;
            }
        }
        assert!(refused > 2 && granted == 2, "{:?} {:?}: {refused} refused, {granted} granted", asked.mode, asked.by);
        open_within(&bed, &client, &asked, &Limit::none(), &before).expect("there is enough of everything");
    }
}

#[test]
fn others_read_on_while_openings_fail() {
    let Some(bed) = Bed::new(None) else { return };
    let before = bed.held(0);
    let witnesses = Witnesses::new(&bed);
    let client = bed.client();
    let alone = bed.held(Witnesses::COUNT + 1);
    for asked in all_asked(&bed) {
        let (mut refused, mut not_exchanged, mut done) = (0, 0, 0);
        for limit in 3..files_end(&bed) + FILES {
            Limit(Resource::Nofile, Some(limit)).set(&bed);
            let outcome = client.open(&asked);
            match outcome.as_ref().map(|attachment| client.exchange(attachment.granted.id, &to_port(80))) {
                Err(_) => refused += 1,
                Ok(Err(_)) => not_exchanged += 1,
                Ok(Ok(_)) => done += 1,
            }
            Limit::none().set(&bed);
            drop(outcome);
            bed.await_held(&alone);
            if done == 2 {
                break;
            }
        }
        // An exchange loads its programs beside the present ones. Programs of a packet socket belong to this process.
        assert!(refused > 4 && done == 2, "{:?}: {refused} refused, {not_exchanged} not exchanged", asked.by);
    }
    drop(client);
    witnesses.traffic.more(500);
    witnesses.end(&bed);
    bed.await_held(&before);
}
