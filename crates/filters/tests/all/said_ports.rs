//! Port selectors behind a device: they trust the ports that the ring's writer noted for a packet. Without a note they
//! read the packet's bytes.

use buffer::live::{Facts, SlotFlags};
use capture::copying::{self, Copied, Copier, Copying};
use capture::{
    By, CaptureError, CaptureReader, CaptureRegistry, CaptureRequest, Device, ETHERNET, Expression, Mode, Opened,
    Writer,
};
use filter::{Lower, Params};
use filters::{destport, port, sourceport};
use std::sync::{Arc, Mutex};
use testkit::Chain;
use testkit::packets::{CLIENT, SERVER, tcp, udp};

/// A device whose packets the test makes.
#[derive(Clone, Default)]
struct Played(Arc<Mutex<Option<Copying>>>);

impl Opened for Played {
    fn index(&self, _device: &str) -> Result<u32, CaptureError> {
        Ok(1)
    }

    fn open(&self, device: &str, ring_bytes: u64, _mode: Mode, _by: By) -> Result<Box<dyn Writer>, CaptureError> {
        let (ring, copying) = copying::ring(device, ring_bytes)?;
        *self.0.lock().unwrap() = Some(copying);
        Ok(Box::new(Copied::new(self.clone(), ring)))
    }
}

impl Copier for Played {
    fn device(&self) -> Device {
        Device {
            name: "played0".into(),
            index: 1,
            link_type: ETHERNET,
            mtu: 1500,
            how: "by a test".into(),
            copied: true,
        }
    }

    fn promiscuous(&self, _wanted: bool) -> Result<(), CaptureError> {
        Ok(())
    }

    fn sift(&self, _expressions: &[&Expression]) -> Result<(), CaptureError> {
        Ok(())
    }

    fn gone(&self) -> bool {
        false
    }
}

/// Runs a selector on packets with these notes: classes, numbers taken and rejected, and number of unreadable packets.
fn given(kind: &'static filter::Kind, wanted: &str, packets: &[(Option<u32>, Vec<u8>)]) -> (Vec<u32>, [u64; 2], u64) {
    let played = Played::default();
    let registry = CaptureRegistry::new(Box::new(played.clone())).unwrap();
    let asked = CaptureRequest { device: "played0".into(), ring_bytes: 1 << 20, ..CaptureRequest::default() };
    let reader = CaptureReader::new(registry.open(&asked, 0).unwrap(), None, None).unwrap();
    let mut copying = played.0.lock().unwrap().take().unwrap();
    copying.batch(|publisher| {
        for (said, bytes) in packets {
            let flags = if said.is_some() { SlotFlags::PORTS } else { SlotFlags::default() };
            let wire = bytes.len() as u32;
            publisher.publish(Facts { wire, flags, class: said.unwrap_or(0), ..Facts::default() }, bytes);
        }
    });
    drop(registry);
    let params = testkit::chain::params(kind, &[("port", wanted)]);
    let Some(Lower::Selects(make)) = kind.lower else { panic!("{} is a selector by ports", kind.name) };
    let source = filters::source(reader, &Params::new(), Some(make(&params).unwrap()));
    let outcome = Chain::made(source).run();
    // The source fails because its ring has no owner any more.
    assert!(outcome.failure.is_some());
    let counters = &outcome.report.nodes[0].counters;
    let classes = outcome.blocks.iter().map(|block| block.descriptor.class.0).collect();
    let unreadable =
        counters.unread.iter().filter(|(name, _)| name.contains("truncated")).map(|(_, count)| count).sum();
    (classes, [counters.blocks_taken, counters.blocks_rejected], unreadable)
}

#[test]
fn what_is_said_is_believed_and_else_the_bytes_decide() {
    let ports = |source: u32, destination: u32| source << 16 | destination;
    let (client, server) = (CLIENT, SERVER);
    let frame = |to: u16| udp((client.0, 1000), (server.0, to), b"hello");
    let broken = tcp((client.0, 1000), (server.0, 80), 1, 2, 0x10, b"")[..14 + 20 + 2].to_vec();
    let packets = [
        // Noted ports count, whatever the bytes are.
        (Some(ports(1000, 80)), frame(53)),
        (Some(ports(80, 7)), frame(53)),
        (Some(ports(1000, 53)), frame(80)),
        // No ports noted.
        (None, frame(80)),
        (None, frame(53)),
        (None, broken),
        (None, vec![0; 60]),
    ];
    assert_eq!(given(&port::KIND, "80", &packets), (vec![ports(1000, 80), ports(80, 7), ports(1000, 80)], [3, 4], 1));
    assert_eq!(given(&sourceport::KIND, "80", &packets), (vec![80], [1, 6], 1));
    assert_eq!(given(&destport::KIND, "50:80", &packets), (vec![80, 53, 80, 53], [4, 3], 1));
}
