//! The program that redirects frames to another device: what goes, what stays, and where it is counted.

use driver::ethtool::Offloads;
use driver::features;
use kernel::sys::{Hook, Link, live_run};
use kernel::{ConsumeProgram, To, Wanted};
use program::cbpf::Instruction;
use program::from_cbpf;
use std::time::{Duration, Instant};
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};

const PATIENCE: Duration = Duration::from_secs(10);

/// Two pairs that meet in one namespace. Frames sent on the far end of the first should come out of the far end of the
/// second.
struct Way {
    from: Pair,
    to: Pair,
}

impl Way {
    fn new() -> Option<Way> {
        if !may_make_networks() {
            return None;
        }
        let here = quiet_namespace();
        let pair = |near: &str, far: &str| Pair::named([(&here, near), (&quiet_namespace(), far)], 1);
        let way = Way { from: pair("in", "sender").unwrap(), to: pair("out", "receiver").unwrap() };
        // A program redirects into this device only while its other end works by NAPI.
        way.to.far.set_offloads(Offloads { gro: true, ..Offloads::NONE });
        Some(way)
    }

    fn target(&self) -> To {
        let out = self.to.near.link();
        To::Device { index: out.index, longest: out.mtu + out.header_bytes() + 4 }
    }

    /// Attaches a program to the device that frames come in by.
    fn attach(&self, consume_program: &ConsumeProgram) -> Link {
        let attach = || Link::attach(consume_program.program(), self.from.near.index, Hook::Xdp);
        self.from.near.namespace.enter(attach).unwrap().expect("a device without a program takes one")
    }
}

fn received(end: &End) -> u64 {
    end.link().counters.get("rx_packets").unwrap_or(0)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: it did not come to that");
        std::thread::yield_now();
    }
}

fn frame(kind: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[14] = kind;
    frame
}

#[test]
fn frames_go_out_by_the_other_device_and_what_does_not_is_counted() {
    let Some(way) = Way::new() else { return };
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let first_is_7 = from_cbpf(&[at(0x30, 0, 0, 14), at(0x15, 0, 1, 7), at(6, 0, 0, 1), at(6, 0, 0, 0)]).unwrap();
    let load = || ConsumeProgram::to(way.target(), Wanted::Any(&[&first_is_7]));
    let consume_program = match way.from.near.namespace.enter(load).unwrap() {
        Ok(consume_program) => consume_program,
        Err(error) => return eprintln!("skipped (rights): {error}"),
    };
    let _link = way.attach(&consume_program);
    let mut sender = way.from.far.sender();
    for _ in 0..100 {
        sender.send(&frame(7, 60)).unwrap();
        sender.send(&frame(8, 60)).unwrap();
    }
    until("frames arrive", || received(&way.to.far) == 100);
    until("the others stay", || consume_program.counted().left == 100);
    let counted = consume_program.counted();
    assert_eq!((counted.seen, counted.wanted, counted.too_long, counted.nowhere), (200, 100, 0, 0));
    assert_eq!((counted.wanted_bytes, counted.left_bytes), (6000, 6000));
    for end in [&way.from.near, &way.from.far] {
        end.set_mtu(1700);
    }
    sender.send(&frame(7, 1518)).unwrap();
    until("it fits", || received(&way.to.far) == 101);
    sender.send(&frame(7, 1519)).unwrap();
    until("it is counted", || consume_program.counted().too_long == 1);
    way.to.near.remove();
    sender.send(&frame(7, 60)).unwrap();
    until("it is counted", || consume_program.counted().nowhere == 1);
    assert_eq!(consume_program.counted().wanted, 103);
}

#[test]
fn the_kernel_says_whether_a_device_takes_redirected_frames_and_test_frames_show_it() {
    let Some(way) = Way::new() else { return };
    let out = &way.to.near;
    let takes = || out.namespace.enter(|| features::xdp(out.index)).unwrap().unwrap();
    let Some(features) = takes() else { return eprintln!("skipped: the kernel does not say what drivers do") };
    assert!(features.redirects() && features.takes_redirected());
    let load = || ConsumeProgram::to(way.target(), Wanted::All);
    let consume_program = match out.namespace.enter(load).unwrap() {
        Ok(consume_program) => consume_program,
        Err(error) => return eprintln!("skipped (rights): {error}"),
    };
    let sent = || out.link().counters.get("tx_packets").unwrap_or(0);
    for gro in [true, false, true] {
        way.to.far.set_offloads(Offloads { gro, ..Offloads::NONE });
        assert_eq!(takes().unwrap().takes_redirected(), gro, "NAPI at its other end is what it takes");
        let before = (received(&way.to.far), sent());
        out.namespace.enter(|| live_run(consume_program.program(), &frame(0, 60), 3)).unwrap().unwrap();
        if gro {
            until("test frames come out", || received(&way.to.far) == before.0 + 3 && sent() == before.1 + 3);
        } else {
            // A frame by another way has arrived, so frames that should not come out would have arrived as well.
            let mut sender = out.sender();
            sender.send(&frame(0, 60)).unwrap();
            until("a frame by another way arrives", || received(&way.to.far) == before.0 + 1);
            assert_eq!(sent(), before.1 + 1, "test frames do not come out, and nothing says so");
        }
    }
}
