//! The memory of a flow channel as one side has it mapped: its own segment for writing, the other's for reading.

use super::layout::{ApplicationWords, DriverWords, Empty, Geometry, Owned, Packet, Record};
use crate::shared::payload::{Payload, Span};
use crate::shared::words::{Shared, SharedArray};

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) geometry: Geometry,
    pub(super) driver: Shared<DriverWords>,
    pub(super) application: Shared<ApplicationWords>,
    pub(super) records: SharedArray<Record>,
    pub(super) empties: SharedArray<Empty>,
    pub(super) packets: SharedArray<Packet>,
    pub(super) said_owned: SharedArray<Owned>,
    pub(super) send: Payload,
    pub(super) receive: Span,
}

#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Application,
    Driver,
}

#[cfg(not(loom))]
mod mapped {
    use super::*;
    use crate::shared::segment::{Access, Segment};
    use std::io;

    impl Parts {
        /// Maps the application's segment and the driver's. `side` writes its own, and reads the other.
        pub(in super::super) fn map(
            geometry: Geometry,
            applications: &Segment,
            drivers: &Segment,
            side: Side,
        ) -> io::Result<Parts> {
            let (applications_access, drivers_access) = match side {
                Side::Application => (Access::Write, Access::Read),
                Side::Driver => (Access::Read, Access::Write),
            };
            // One map of each: mapping and unmapping are most of the cost of opening and closing a channel.
            let front = applications.map_with_ring(geometry.send_data(), applications_access)?;
            let drivers_front = drivers.map(0, drivers.bytes(), drivers_access)?;
            let buffers = geometry.receive_buffers as usize;
            let parts = || {
                Some((
                    Shared::in_mapping(&drivers_front, 0)?,
                    Shared::in_mapping(&front, 0)?,
                    SharedArray::in_mapping(&front, Geometry::records(), geometry.send_records as usize)?,
                    SharedArray::in_mapping(&front, geometry.empties(), buffers)?,
                    SharedArray::in_mapping(&drivers_front, Geometry::packets(), buffers)?,
                    SharedArray::in_mapping(&drivers_front, geometry.owned(), geometry.owned_words())?,
                    Span::part(&drivers_front, geometry.receive_data(), geometry.receive_data_bytes())?,
                ))
            };
            let misfit = || io::Error::new(io::ErrorKind::InvalidData, "a flow channel's words do not fit");
            let (driver, application, records, empties, packets, said_owned, receive) = parts().ok_or_else(misfit)?;
            Ok(Parts {
                geometry,
                driver,
                application,
                records,
                empties,
                packets,
                said_owned,
                send: Payload::of_ring(&front, geometry.send_data(), geometry.send_bytes as usize)?,
                receive,
            })
        }
    }
}

#[cfg(loom)]
mod modelled {
    use super::*;
    use crate::flow::{Application, Driver};
    use base::atomic::AtomicU64;
    use std::array::from_fn;

    fn zero() -> AtomicU64 {
        AtomicU64::new(0)
    }

    /// A channel of a few records, buffers and bytes in the model checker's memory. `geometry` need not be valid.
    pub fn model(geometry: Geometry) -> (Driver, Application) {
        let driver = Shared::private(DriverWords {
            done: zero(),
            _done: from_fn(|_| zero()),
            received: zero(),
            _received: from_fn(|_| zero()),
            state: zero(),
            errors: zero(),
            errno: zero(),
            changes: zero(),
            link: zero(),
            mtu: zero(),
            _state: from_fn(|_| zero()),
            given: zero(),
            settled: zero(),
            _given: from_fn(|_| zero()),
            drops: from_fn(|_| zero()),
        });
        let application = Shared::private(ApplicationWords {
            sent: zero(),
            closed: zero(),
            _sent: from_fn(|_| zero()),
            empties: zero(),
            _empties: from_fn(|_| zero()),
        });
        let record = |_| Record { count: zero(), pieces: from_fn(|_| zero()) };
        let packet = |_| Packet { place: zero(), time: zero() };
        let records = SharedArray::private((0..geometry.send_records).map(record).collect());
        let empties = SharedArray::private((0..geometry.receive_buffers).map(|_| Empty(zero())).collect());
        let packets = SharedArray::private((0..geometry.receive_buffers).map(packet).collect());
        let said_owned = SharedArray::private((0..geometry.owned_words()).map(|_| Owned(zero())).collect());
        let send = Payload::private(geometry.send_bytes as usize);
        let receive = Span::private((geometry.receive_buffers * geometry.buffer_bytes) as usize);
        let parts = || Parts {
            geometry,
            driver: driver.clone(),
            application: application.clone(),
            records: records.clone(),
            empties: empties.clone(),
            packets: packets.clone(),
            said_owned: said_owned.clone(),
            send: send.clone(),
            receive: receive.clone(),
        };
        let mut half = Driver::new(parts());
        half.own_all();
        (half, Application::new(parts()))
    }
}

#[cfg(loom)]
pub use modelled::model;
