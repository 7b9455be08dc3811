//! Networks that tests make for themselves: two namespaces, a pair of devices between them, and a sender of any frame.
//!
//! Nothing of it has a name outside the test: when the test ends, however it ends, the kernel takes everything away. And
//! nothing moves in it but what the test sends: no addresses, no neighbours, no IPv6, no offloads.

use driver::af_packet::PacketSocket;
use driver::change::Change;
use driver::ethtool::{Ethtool, Offloads};
use driver::link::{self, Link};
use driver::namespace::Namespace;
use driver::netlink::Netlink;
use driver::watch::Watch;
use std::io;
use std::time::{Duration, Instant};

/// How long a device may take to get into the state it was asked to get into.
const SETTLING: Duration = Duration::from_secs(10);

/// May this test make networks? If not, says on standard error why it is skipped.
#[must_use]
pub fn may_make_networks() -> bool {
    match Namespace::create() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped (rights): cannot make network namespaces ({error}); run as root");
            false
        }
    }
}

/// A namespace in which IPv6 is off, so that nothing is sent by itself.
pub fn quiet_namespace() -> Namespace {
    let namespace = Namespace::create().expect("the caller asked whether it may");
    let silence = || {
        for which in ["all", "default"] {
            // Where there is no IPv6, there is nothing to switch off.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
        }
    };
    namespace.enter(silence).expect("it was just made");
    namespace
}

/// One end of a [`Pair`], or any other device in a namespace of a test's own.
#[derive(Clone, Debug)]
pub struct End {
    /// Where it is.
    pub namespace: Namespace,
    /// Its name there.
    pub name: String,
    /// Its number there.
    pub index: u32,
}

/// Two devices, each in a namespace of its own, each of which receives what is sent on the other. Both are up, without
/// offloads.
#[derive(Debug)]
pub struct Pair {
    /// One.
    pub near: End,
    /// The other.
    pub far: End,
}

impl Pair {
    /// A pair for Ethernet, with one queue each.
    pub fn new() -> Pair {
        Pair::with_queues(1)
    }

    /// A pair with as many queues each; with 0 as many as the driver likes, not all in use.
    pub fn with_queues(queues: u32) -> Pair {
        Pair::between(&quiet_namespace(), &quiet_namespace(), queues).expect("the caller asked whether it may")
    }

    /// A pair between two namespaces.
    pub fn between(near: &Namespace, far: &Namespace, queues: u32) -> io::Result<Pair> {
        Pair::named([(near, "near"), (far, "far")], queues)
    }

    /// A pair of devices of these names: the near one, the far one.
    pub fn named([near, far]: [(&Namespace, &str); 2], queues: u32) -> io::Result<Pair> {
        near.0.enter(|| Netlink::route(0)?.create_veth(near.1, far.1, far.0, queues))??;
        let pair = Pair { near: End::find(near.0, near.1)?, far: End::find(far.0, far.1)? };
        for end in [&pair.near, &pair.far] {
            end.set_offloads(Offloads::NONE);
            end.change(&Change { arp: Some(false), up: Some(true), ..Change::default() });
        }
        for end in [&pair.near, &pair.far] {
            end.await_carrier();
        }
        Ok(pair)
    }
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

impl End {
    /// The device of this name in a namespace.
    pub fn find(namespace: &Namespace, name: &str) -> io::Result<End> {
        let link = namespace.enter(|| link::find(name))??.ok_or(io::ErrorKind::NotFound)?;
        Ok(End { namespace: namespace.clone(), name: name.into(), index: link.index })
    }

    /// What the kernel says of it.
    ///
    /// # Panics
    ///
    /// Where it is gone.
    pub fn link(&self) -> Link {
        self.links().into_iter().find(|link| link.index == self.index).expect("nobody removed it")
    }

    fn links(&self) -> Vec<Link> {
        self.namespace.enter(link::list).expect("its namespace is there").expect("anybody may list devices")
    }

    /// Changes it.
    pub fn change(&self, change: &Change) {
        let changed = self.namespace.enter(|| Netlink::route(0)?.change(self.index, change));
        changed.expect("its namespace is there").expect("the change is possible");
    }

    /// Switches it on or off, and waits until it is.
    pub fn set_up(&self, up: bool) {
        self.change(&Change { up: Some(up), ..Change::default() });
        self.await_state(|link| link.is_up() == up);
    }

    /// Waits until what is sent on it or its other end arrives. The kernel hears of a carrier later than who switched the
    /// device on, and until then drops what is sent, and counts nothing.
    pub fn await_carrier(&self) {
        let tells = |link: &Link| link.kind.as_deref() == Some("veth");
        self.await_state(|link| link.is_running() && (link.operational || !tells(link)));
        // Under the lock under which it says so it makes it so, right after: this waits for it.
        self.change(&Change::default());
    }

    /// Another largest packet.
    pub fn set_mtu(&self, mtu: u32) {
        self.change(&Change { mtu: Some(mtu), ..Change::default() });
    }

    /// Sets its offloads as far as they can be set.
    pub fn set_offloads(&self, offloads: Offloads) {
        let set = self.namespace.enter(|| Ethtool::new()?.set_offloads(&self.name, offloads));
        set.expect("its namespace is there").expect("root may set offloads");
    }

    /// Removes it, and the other end with it.
    pub fn remove(&self) {
        let removed = self.namespace.enter(|| Netlink::route(0)?.remove(self.index));
        removed.expect("its namespace is there").expect("it is there");
    }

    /// Waits until the kernel says of it what `is_so` wants.
    ///
    /// # Panics
    ///
    /// Where that does not come to be.
    pub fn await_state(&self, is_so: impl Fn(&Link) -> bool) {
        let mut watch = Watch::new(&self.namespace).expect("anybody may watch");
        let end = Instant::now() + SETTLING;
        while !watch.links().any(|link| link.index == self.index && is_so(link)) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "{} did not get into the state it was asked to get into: {:?}",
                self.name,
                self.link()
            );
            watch.next(left).expect("the kernel tells");
        }
    }

    /// A sender on this device: the other end receives what it sends.
    pub fn sender(&self) -> FrameSender {
        let open = || {
            let socket = PacketSocket::new(self.index)?;
            socket.bind_to_send()?;
            Ok::<_, driver::Error>(socket)
        };
        let socket = self.namespace.enter(open).expect("its namespace is there").expect("root may open packet sockets");
        FrameSender { socket, frames: 0, bytes: 0 }
    }
}

/// Sends frames one by one, whatever is in them, and counts.
#[derive(Debug)]
pub struct FrameSender {
    socket: PacketSocket,
    /// Frames sent.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl FrameSender {
    /// Sends a frame.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame)?;
        self.frames += 1;
        self.bytes += frame.len() as u64;
        Ok(())
    }
}
