//! How many flows each user has, and memory for them, on all interfaces together.

use crate::error::{NetError, NetErrorKind};
use crate::limits::{USER_BYTES, USER_FLOWS};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// By user: flows, and bytes of their channels.
type Counts = Arc<Mutex<HashMap<u32, (usize, usize)>>>;

/// Flows by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(Counts);

/// One flow's part of its user's quota; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    users: Counts,
    user: u32,
    bytes: usize,
}

impl Users {
    /// A permit for one more flow of this user, whose channel has `bytes`, which the daemon holds in memory.
    pub(crate) fn take(&self, user: u32, bytes: usize) -> Result<Permit, NetError> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (flows, used) = counts.get(&user).copied().unwrap_or_default();
        let full = |text: String| Err(NetError::new(NetErrorKind::Full, text));
        if flows >= USER_FLOWS {
            return full(format!("user {user} has {USER_FLOWS} flows, the most a user may have; close some"));
        }
        if used.saturating_add(bytes) > USER_BYTES {
            return full(format!(
                "user {user} has channels of {used} bytes, and {bytes} more are beyond the {USER_BYTES} that a user may have; close \
                 some flows, or ask for smaller channels"
            ));
        }
        counts.insert(user, (flows + 1, used + bytes));
        Ok(Permit { users: Arc::clone(&self.0), user, bytes })
    }

    /// A permit for a flow that is there already, also beyond the limits.
    pub(crate) fn take_all_the_same(&self, user: u32, bytes: usize) -> Permit {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (flows, used) = counts.entry(user).or_default();
        (*flows, *used) = (*flows + 1, *used + bytes);
        Permit { users: Arc::clone(&self.0), user, bytes }
    }

    /// Flows of all users.
    #[cfg(test)]
    pub(crate) fn flows(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(|(flows, _)| flows).sum()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((flows, bytes)) = counts.get_mut(&self.user) {
            *flows -= 1;
            *bytes -= self.bytes;
            if *flows == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_its_own_quota_and_places_come_back() {
        let users = Users::default();
        let places: Vec<_> = (0..USER_FLOWS).map(|_| users.take(1, 1).expect("there is room")).collect();
        assert_eq!(users.take(1, 1).expect_err("it is full").kind, NetErrorKind::Full);
        assert!(users.take(2, USER_BYTES).is_ok());
        assert!(users.take(2, USER_BYTES + 1).expect_err("too many bytes").text.contains("smaller channels"));
        drop(places);
        assert_eq!(users.flows(), 0);
    }
}
