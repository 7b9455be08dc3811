//! Networks that tests make for themselves: two namespaces, a pair of devices between them, and a sender of any frame.
//! `driver/pair.rs` makes them; here a failure fails the test.

use driver::af_packet::PacketSocket;
use driver::change::Change;
use driver::ethtool::Offloads;
use driver::link::Link;
use driver::namespace::Namespace;
use driver::pair;
use std::io;
use std::ops::Deref;

/// Whether this test may make networks. If not, says on standard error that it is skipped.
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

/// A namespace without IPv6, so that it sends no frames by itself.
pub fn quiet_namespace() -> Namespace {
    pair::quiet_namespace().expect("the caller asked whether it may")
}

/// One end of a [`Pair`], or any other device in a namespace of the test. A failure fails the test.
#[derive(Clone, Debug)]
pub struct End(pair::End);

/// Two devices in namespaces of their own, up and without offloads. Each receives the frames sent on the other.
#[derive(Debug)]
pub struct Pair {
    /// The near device.
    pub near: End,
    /// The far device.
    pub far: End,
}

impl Pair {
    /// A pair for Ethernet, with one queue each.
    pub fn new() -> Pair {
        Pair::with_queues(1)
    }

    /// A pair with `queues` queues each. 0: the driver's number, not all of them in use.
    pub fn with_queues(queues: u32) -> Pair {
        Pair::between(&quiet_namespace(), &quiet_namespace(), queues).expect("the caller asked whether it may")
    }

    /// A pair between two namespaces.
    pub fn between(near: &Namespace, far: &Namespace, queues: u32) -> io::Result<Pair> {
        Pair::named([(near, "near"), (far, "far")], queues)
    }

    /// A pair of devices with these names: near, then far.
    pub fn named(ends: [(&Namespace, &str); 2], queues: u32) -> io::Result<Pair> {
        let pair::Pair { near, far } = pair::Pair::named(ends, queues)?;
        Ok(Pair { near: End(near), far: End(far) })
    }
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

impl Deref for End {
    type Target = pair::End;

    fn deref(&self) -> &pair::End {
        &self.0
    }
}

impl End {
    /// The device with this name and index in a namespace, which may not exist.
    pub fn new(namespace: &Namespace, name: &str, index: u32) -> End {
        End(pair::End { namespace: namespace.clone(), name: name.into(), index })
    }

    /// The device of this name in a namespace.
    pub fn find(namespace: &Namespace, name: &str) -> io::Result<End> {
        pair::End::find(namespace, name).map(End)
    }

    /// The kernel's data about it.
    pub fn link(&self) -> Link {
        self.0.link().expect("nobody removed it")
    }

    /// Changes it.
    pub fn change(&self, change: &Change) {
        self.0.change(change).expect("the change is possible");
    }

    /// Switches it on or off, and waits until it is.
    pub fn set_up(&self, up: bool) {
        self.change(&Change { up: Some(up), ..Change::default() });
        self.await_state(|link| link.is_up() == up);
    }

    /// Waits until frames sent on it or its other end arrive.
    pub fn await_carrier(&self) {
        self.0.await_carrier().expect("it gets a carrier");
    }

    /// Sets the length of its largest packet.
    pub fn set_mtu(&self, mtu: u32) {
        self.change(&Change { mtu: Some(mtu), ..Change::default() });
    }

    /// Sets its offloads, as far as possible.
    pub fn set_offloads(&self, offloads: Offloads) {
        self.0.set_offloads(offloads).expect("root may set offloads");
    }

    /// Removes it, and the other end with it.
    pub fn remove(&self) {
        self.0.remove().expect("it is there");
    }

    /// Waits until `is_so` holds for the kernel's data about it.
    pub fn await_state(&self, is_so: impl Fn(&Link) -> bool) {
        let awaited = self.0.await_state(is_so);
        awaited.unwrap_or_else(|error| panic!("{error}: {:?}", self.link()));
    }

    /// A sender on this device; the other end receives its frames.
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

/// Sends frames one by one, with any content, and counts them.
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
