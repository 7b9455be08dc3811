//! The devices on which the suite runs.

use super::bed::{Ability, Bed, Subject, Wanted};
use driver::Transmit;
use driver::af_packet::options::BLOCK_BYTES_MIN;
use driver::af_packet::{Direction, Options, Receiver, Sender, SenderOptions};
use driver::af_xdp::{self, Attach};
use driver::change::Change;
use driver::loopback::{self, Capacity};
use driver::tuntap::{self, TunTap};
use std::time::Duration;
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};

fn absent_without_privileges() -> Option<String> {
    (!may_make_networks()).then(|| "no networks can be made here".into())
}

fn observer(end: &End) -> Receiver {
    let options = Options { direction: Direction::In, block_timeout: Duration::from_millis(1), ..Options::default() };
    Receiver::open(&end.namespace, &end.name, &options).expect("root may observe")
}

fn pair(wanted: &Wanted) -> Pair {
    let pair = Pair::new();
    if let Some(mtu) = wanted.mtu {
        let change = Change { mtu: Some(mtu), ..Change::default() };
        pair.near.change(&change);
        pair.far.change(&change);
    }
    pair
}

/// Bytes of the largest packet of a veth device.
const VETH_MTU_MAX: u32 = 65_535;

pub fn af_packet() -> Subject {
    let open = |wanted: &Wanted| open_af_packet(wanted, false);
    Subject { open, cannot: &[], absent: absent_without_privileges(), mtu_max: VETH_MTU_MAX }
}

pub fn af_packet_at_once() -> Subject {
    let open = |wanted: &Wanted| open_af_packet(wanted, true);
    Subject { open, cannot: &[], absent: absent_without_privileges(), mtu_max: VETH_MTU_MAX }
}

fn open_af_packet(wanted: &Wanted, at_once: bool) -> Bed {
    let pair = pair(wanted);
    if wanted.down {
        pair.near.set_up(false);
    }
    let mut options = Options {
        block_timeout: Duration::from_millis(1),
        promiscuous: wanted.promiscuous,
        at_once,
        ..Options::default()
    };
    if wanted.small {
        (options.block_bytes, options.block_count) = (BLOCK_BYTES_MIN, 2);
    }
    if let Some(filter) = &wanted.filter {
        options.filter.clone_from(filter);
    }
    let (namespace, name) = (&pair.near.namespace, pair.near.name.as_str());
    let mut injector = pair.far.sender();
    Bed {
        receiver: Box::new(Receiver::open(namespace, name, &options).expect("root may receive")),
        sender: Box::new(Sender::open(namespace, name, SenderOptions::default()).expect("root may send")),
        inject: Box::new(move |frame| injector.send(frame).expect("the other end is up")),
        observer: Box::new(observer(&pair.far)),
        device: Some(pair.near),
        prompt: false,
    }
}

/// An AF_XDP socket on one end of a pair, its program in the device's driver.
pub fn af_xdp() -> Subject {
    af_xdp_at(|wanted| open_af_xdp(wanted, Attach::Native))
}

/// The same with the program after the driver.
pub fn af_xdp_generic() -> Subject {
    af_xdp_at(|wanted| open_af_xdp(wanted, Attach::Generic))
}

fn af_xdp_at(open: fn(&Wanted) -> Bed) -> Subject {
    let cannot = &[
        (Ability::Outgoing, "XDP sees what a device receives only"),
        (Ability::Filter, "an AF_XDP socket's filter is the program that redirects"),
        (Ability::LargestFrames, "a frame of an AF_XDP socket lies in one chunk"),
    ];
    Subject { open, cannot, absent: absent_without_privileges(), mtu_max: 3000 }
}

fn open_af_xdp(wanted: &Wanted, attach: Attach) -> Bed {
    let pair = pair(wanted);
    if wanted.down {
        pair.near.set_up(false);
    }
    let options = af_xdp::Options {
        attach,
        promiscuous: wanted.promiscuous,
        receive_chunks: if wanted.small { 64 } else { 4096 },
        ..af_xdp::Options::default()
    };
    let device = af_xdp::Device::open(&pair.near.namespace, &pair.near.name, options);
    let mut device = device.expect("root may take what a device receives");
    let queue = device.queues.remove(0);
    let mut injector = pair.far.sender();
    Bed {
        receiver: Box::new(queue.receiver),
        sender: Box::new(queue.sender),
        inject: Box::new(move |frame| injector.send(frame).expect("the other end is up")),
        observer: Box::new(observer(&pair.far)),
        device: Some(pair.near),
        prompt: false,
    }
}

/// A tap: it receives what the host sends on the device.
pub fn tap() -> Subject {
    let open = |wanted: &Wanted| {
        let namespace = quiet_namespace();
        let queue_frames = if wanted.small { 500 } else { 4096 };
        let options = tuntap::Options { name: "tap".into(), queue_frames, ..tuntap::Options::default() };
        let mut tap = TunTap::open(&namespace, &options).expect("root may make devices");
        let host = End::new(&namespace, &tap.device.name, tap.device.index);
        host.change(&Change { arp: Some(false), mtu: wanted.mtu, up: Some(!wanted.down), ..Change::default() });
        let (receiver, sender) = tap.queues.remove(0);
        let mut injector = host.sender();
        Bed {
            receiver: Box::new(receiver),
            sender: Box::new(sender),
            inject: Box::new(move |frame| injector.send(frame).expect("it is up")),
            observer: Box::new(observer(&host)),
            device: Some(host),
            prompt: true,
        }
    };
    let cannot = &[
        (Ability::Outgoing, "who holds a tap is the other end of the host's line, and does not hear itself"),
        (Ability::Filter, "who holds a tap is the only one to receive"),
        (Ability::Promiscuity, "everything that the host sends on a tap is for who holds it"),
        (Ability::Limits, "a host takes frames of any length from a tap"),
        (Ability::LastFrames, "the kernel throws away what nobody has read of a tap that is removed"),
    ];
    Subject { open, cannot, absent: absent_without_privileges(), mtu_max: 65_521 }
}

pub fn loopback() -> Subject {
    let open = |_: &Wanted| {
        // Room for everything that a check sends before it receives.
        let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
        let (mut injector, observer) = (far.sender, far.receiver);
        Bed {
            receiver: Box::new(near.receiver),
            sender: Box::new(near.sender),
            inject: Box::new(move |frame| {
                injector.transmit(&[frame]).expect("the other end is there");
            }),
            observer: Box::new(observer),
            device: None,
            prompt: true,
        }
    };
    let cannot = &[
        (Ability::Outgoing, "an end of a pair in a process does not hear itself"),
        (Ability::Filter, "a pair in a process has no filter"),
        (Ability::Link, "a pair in a process is no device of the kernel's"),
        (Ability::Promiscuity, "a pair in a process knows no addresses"),
        (Ability::Limits, "a pair in a process takes frames of any length"),
        (Ability::Overload, "a pair in a process takes no more than it has room for"),
    ];
    Subject { open, cannot, absent: None, mtu_max: 65_535 }
}
