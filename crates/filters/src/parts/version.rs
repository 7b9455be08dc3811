//! What `ip` and `ip6` share: the test for packets of one IP version.

use crate::parts::select::{FrameTest, View};
use filter::prelude::*;
use packet::malformed::Malformed;

pub(crate) struct VersionTest(pub u8);

impl FrameTest for VersionTest {
    #[inline]
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed> {
        let packet = view.packet()?;
        *class = Class(packet.protocol.into());
        Ok(packet.version == self.0)
    }
}
