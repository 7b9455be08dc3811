//! A kernel that refuses: each call made while a capture is opened or its readers change fails in turn. The failure is
//! reported, or the work is done in another way. The failed attempt leaves no objects behind, and other readers lose no
//! packets. This is one test in a program of its own, since calls fail for the whole process; and only calls of a debug build.

#![cfg(debug_assertions)]

use capture::reader::Found;
use capture::{Attachment, By, CaptureError, CaptureReader, CaptureRegistry, CaptureRequest};
use kernel::faults;
use kernel::inventory::{self, Object};
use kernel::sys::Hook;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use streamline::Session;
use streamline::devices::Place;
use streamline::devices::opener::Opener;
use testkit::network::{FrameSender, Pair, may_make_networks};
use testkit::packets::to_port;

/// Errors of a kernel: out of memory, not permitted.
const ERRORS: [i32; 2] = [12, 1];

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn objects() -> BTreeSet<(Object, u32)> {
    let mut objects = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        for line in text.lines() {
            for (key, object) in [("prog_id:", Object::Program), ("map_id:", Object::Map), ("link_id:", Object::Link)] {
                if let Some(id) = line.strip_prefix(key).and_then(|id| id.trim().parse().ok()) {
                    objects.insert((object, id));
                }
            }
        }
    }
    objects
}

fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

struct Bed {
    pair: Pair,
    registry: CaptureRegistry,
    known: BTreeSet<(Object, u32)>,
    failed: BTreeSet<&'static str>,
    sender: FrameSender,
}

impl Bed {
    fn capture_request(&self, by: By) -> CaptureRequest {
        CaptureRequest {
            device: "near".into(),
            by,
            sample: 1,
            promiscuous: true,
            ring_bytes: 1 << 20,
            ..CaptureRequest::default()
        }
    }

    /// The outcome of an attempt whose `step`-th call fails. `None`: it makes fewer calls.
    fn fail<T>(
        &mut self,
        step: u32,
        error: i32,
        work: impl FnOnce(&CaptureRegistry) -> T,
    ) -> (T, Option<&'static str>) {
        faults::arm(step, error);
        let outcome = work(&self.registry);
        let failed = faults::disarm();
        self.known.extend(objects());
        self.failed.extend(failed);
        (outcome, failed)
    }

    fn hooks(&self) -> usize {
        let hooks = [Hook::TcxIngress, Hook::TcxEgress];
        hooks.iter().map(|hook| inventory::on_hook(self.pair.near.index, *hook).unwrap().len()).sum()
    }

    /// Waits until only these are held.
    fn await_left(&mut self, expected: &BTreeSet<(Object, u32)>) {
        until("nothing else is held", || objects() == *expected);
        until("the kernel has nothing of it", || {
            self.known.difference(expected).all(|(object, id)| !inventory::exists(*object, *id).unwrap())
        });
        self.known.clear();
    }
}

#[test]
fn whichever_call_the_kernel_refuses_nothing_is_left_and_others_read_on() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let near = pair.near.namespace.clone();
    near.enter(|| {
        let sender = pair.far.sender();
        let registry = CaptureRegistry::new(Box::new(Opener)).unwrap();
        let mut bed = Bed { pair, registry, known: BTreeSet::new(), failed: BTreeSet::new(), sender };
        for error in ERRORS {
            alone(&mut bed, error);
            beside_others(&mut bed, error);
        }
        requests(&mut bed);
        let all = ["attach", "exchange", "freeze", "load", "map", "value"];
        assert!(bed.failed.iter().eq(&all), "{:?} have failed", bed.failed);
    })
    .unwrap();
}

/// Opens a device that has no other reader.
fn alone(bed: &mut Bed, error: i32) {
    let (nothing, before) = (objects(), files());
    for by in [By::Kernel, By::WhatIsBest] {
        let asked = bed.capture_request(by);
        let mut refused = 0;
        for step in 1.. {
            let (outcome, failed) = bed.fail(step, error, |registry| registry.open(&asked, 0));
            let how = outcome.as_ref().map(|attachment: &Attachment| attachment.granted.device.how.clone());
            match (&how, failed) {
                (Ok(how), None) => assert!(how.contains("kernel's program on"), "{how}"),
                // It ran one space higher, and the device says why.
                (Ok(how), Some(_)) => {
                    assert!(
                        by == By::WhatIsBest && how.contains("packet socket") && how.contains("no program"),
                        "{how}"
                    );
                }
                (Err(error), Some(_)) => {
                    assert!(!error.text.is_empty());
                    refused += 1;
                }
                (Err(error), None) => panic!("{by:?}: {error}"),
            }
            drop(outcome);
            until("the ring goes", || bed.registry.states().is_empty());
            bed.await_left(&nothing);
            until("no file is left", || files() == before);
            assert_eq!(bed.hooks(), 0, "{by:?}, step {step}");
            assert_eq!(bed.pair.near.link().promiscuity, 0, "{by:?}, step {step}");
            if failed.is_none() {
                assert!(step > 14 && refused > 2, "{by:?}: {refused} of {step} refused");
                break;
            }
        }
    }
}

/// An attempt to change the readers.
type Attempt<'a> = dyn Fn(&CaptureRegistry) -> Result<(), CaptureError> + 'a;

/// Adds a reader, changes an expression, or asks to keep everything, beside another reader.
fn beside_others(bed: &mut Bed, error: i32) {
    let nothing = objects();
    let asked = bed.capture_request(By::Kernel);
    let mut witness = CaptureReader::new(bed.registry.open(&asked, 0).unwrap(), None, None).unwrap();
    let another = bed.registry.open(&CaptureRequest { program: to_port(80), ..asked.clone() }, 0).unwrap();
    let mut number = 0u64;
    let come = |registry: &CaptureRegistry| {
        registry
            .open(&CaptureRequest { program: to_port(53), ..asked.clone() }, 0)
            .map(|new| registry.close(&[new.granted.id]))
    };
    let change = |registry: &CaptureRegistry| registry.exchange(another.granted.id, &to_port(443)).map(drop);
    let keep = |registry: &CaptureRegistry| {
        let kept = registry.keep("near", By::WhatIsBest, 1 << 20, 7);
        registry.forget("near");
        kept
    };
    let attempts: [&Attempt; 3] = [&come, &change, &keep];
    for attempt in attempts {
        for step in 1.. {
            let (outcome, failed) = bed.fail(step, error, attempt);
            match (failed, outcome) {
                (None, outcome) => outcome.unwrap(),
                // Undoing a failure, and making room after a reader has left, may fail silently.
                (Some(_), Ok(())) => {}
                (Some(_), Err(error)) => assert!(!error.text.is_empty()),
            }
            until("who failed is not among the readers", || {
                let states = bed.registry.states();
                states.len() == 1 && states[0].readers.len() == 2 && !states[0].kept
            });
            for _ in 0..5 {
                bed.sender.send(&frame(number)).unwrap();
                number += 1;
                until("the packet comes", || witness.memory().seen().packets == number);
                let Found::Packet(packet) = witness.look() else { panic!("packet {number} does not come") };
                let mut bytes = [0; 60];
                assert_eq!(witness.take_copy(&packet, &mut bytes), Some(60));
                assert_eq!(bytes, frame(number - 1));
            }
            if failed.is_none() {
                assert!(step > 2, "{step} calls");
                break;
            }
        }
    }
    let ledger = witness.ledger();
    assert_eq!((ledger.seen, ledger.delivered, ledger.lost), (number, number, 0), "{ledger:?}");
    assert_eq!(bed.hooks(), 2);
    drop((witness, another));
    until("the ring goes", || bed.registry.states().is_empty());
    bed.await_left(&nothing);
    assert_eq!(bed.hooks(), 0);
}

/// Requests, whose selectors run one space higher where the kernel refuses them.
fn requests(bed: &mut Bed) {
    if !streamline::describe_compiler().contains("version") {
        return eprintln!("skipped: libpcap is not installed, so no selector is placed in the kernel");
    }
    let (nothing, session) = (objects(), Session::new().devices_at(Place::Here));
    let mut spaces = BTreeSet::new();
    for step in 1.. {
        let prepare = |_: &CaptureRegistry| {
            session.prepare("ethernet near by=kernel | bpf \"udp\" | head 3 | count", &BTreeMap::new())
        };
        let (job, failed) = bed.fail(step, ERRORS[0], prepare);
        match (&job, failed) {
            (Ok(job), _) => {
                let selector = job.running.design.plan.nodes.iter().find(|node| node.label.starts_with("bpf"));
                spaces.insert((selector.expect("it is in the plan").space.clone(), failed));
            }
            (Err(error), Some(_)) => assert!(!error.to_string().is_empty()),
            (Err(error), None) => panic!("{error}"),
        }
        // The objects of a request go with it.
        drop(job);
        let held: BTreeSet<_> = objects();
        assert!(held.len() < 20, "step {step}: {held:?}");
        if failed.is_none() {
            break;
        }
    }
    let spaces: Vec<(&str, Option<&str>)> = spaces.iter().map(|(space, failed)| (space.as_str(), *failed)).collect();
    // Without a map for a trial of its program, nothing speaks against the program.
    assert_eq!(spaces, [("app", Some("load")), ("kernel", None), ("kernel", Some("map"))]);
    drop(session);
    bed.await_left(&nothing);
    assert_eq!(bed.hooks(), 0);
}

/// A UDP frame to port 80 that holds a number.
fn frame(number: u64) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[36..38].copy_from_slice(&80u16.to_be_bytes());
    frame[42..50].copy_from_slice(&number.to_be_bytes());
    frame
}
