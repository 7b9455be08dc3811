//! A packet socket lets in every packet that a reader wants, by the best filter it may attach: with and without the
//! right to load programs.

use capture::reader::Found;
use capture::{By, CaptureReader, CaptureRequest, Devices, Direction};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::time::{Duration, Instant};
use streamline::devices::LocalDevices;
use testkit::network::{Pair, may_make_networks};
use testkit::packets::to_port;

const PATIENCE: Duration = Duration::from_secs(20);

/// A UDP frame to this port, with its number in the last byte, and with a VLAN tag if there is one.
fn frame(number: u8, port: u16, tag: Option<u16>) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].fill(0xff);
    frame[6] = 2;
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[17] = 46;
    frame[23] = 17;
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[59] = number;
    if let Some(tag) = tag {
        let [high, low] = tag.to_be_bytes();
        frame.splice(12..12, [0x81, 0, high, low]);
    }
    frame
}

/// Takes `count` packets, and gives their numbers.
fn take(reader: &mut CaptureReader, count: usize) -> Vec<u8> {
    let (mut got, mut to, end) = (Vec::new(), [0; 100], Instant::now() + PATIENCE);
    while got.len() < count {
        assert!(Instant::now() < end, "{got:?}");
        match reader.look() {
            Found::Packet(packet) => got.extend(reader.take_copy(&packet, &mut to).map(|len| to[len - 1])),
            Found::Nothing => reader.wait(Some(end)),
        }
    }
    got
}

#[test]
fn the_same_is_let_in_with_and_without_the_right_to_load_programs() {
    if !may_make_networks() {
        return;
    }
    for may_load in [true, false] {
        let pair = Pair::new();
        let namespace = pair.near.namespace.clone();
        // Capabilities and namespaces belong to a thread.
        let thread = std::thread::spawn(move || namespace.enter(|| with(&pair, may_load)).unwrap());
        thread.join().unwrap();
    }
}

fn with(pair: &Pair, may_load: bool) {
    let (mut far, mut near) = (pair.far.sender(), pair.near.sender());
    if !may_load {
        let kept = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::IPC_LOCK;
        let kept = capabilities(None).unwrap().permitted & kept;
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).unwrap();
    }
    assert_eq!(kernel::SocketFilter::new(true).is_ok(), may_load);
    let devices = LocalDevices::new();
    let asked = CaptureRequest { device: "near".into(), by: By::PacketSocket, sample: 1, ..CaptureRequest::default() };
    let to = |port, direction| CaptureRequest { program: to_port(port), direction, ..asked.clone() };
    let mut dns = devices.open(&to(53, Direction::Both), None).unwrap();
    let mut send = |number, port, tag| far.send(&frame(number, port, tag)).unwrap();
    send(0, 80, None);
    send(1, 53, None);
    // In a tagged frame other bytes are where this expression looks.
    send(2, 53, Some(5));
    send(3, 53, None);
    assert_eq!(take(&mut dns, 2), [1, 3]);
    let mut web = devices.open(&to(80, Direction::Out), None).unwrap();
    send(4, 80, None);
    send(5, 53, None);
    near.send(&frame(6, 80, None)).unwrap();
    near.send(&frame(7, 53, None)).unwrap();
    near.send(&frame(8, 9, None)).unwrap();
    assert_eq!((take(&mut dns, 2), take(&mut web, 1)), (vec![5, 7], vec![6]));
    // Nine were sent. The filter that counts kept 0, 2, 4 and 8 out. The other one lets in 2 because of its tag, and
    // counts nothing.
    let shown = || web.memory().seen().packets;
    let (all, end) = (if may_load { 9 } else { 6 }, Instant::now() + PATIENCE);
    while shown() < all {
        assert!(Instant::now() < end, "{} seen", shown());
        std::thread::yield_now();
    }
    assert_eq!(shown(), all, "may load: {may_load}");
    drop(dns);
    // The ring stays while it has a reader.
    near.send(&frame(10, 80, None)).unwrap();
    assert_eq!(take(&mut web, 1), [10]);
}
