//! How many flows each user has, on all interfaces together.

use crate::error::{NetError, NetErrorKind};
use crate::limits::USER_FLOWS;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

type Counts = Arc<Mutex<HashMap<u32, usize>>>;

/// Flows by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(Counts);

/// One flow's place; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    users: Counts,
    user: u32,
}

impl Users {
    /// A place for one more flow of this user.
    pub(crate) fn take(&self, user: u32) -> Result<Place, NetError> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(user).or_default();
        if *count >= USER_FLOWS {
            let text = format!("user {user} has {USER_FLOWS} flows, the most a user may have; close some");
            return Err(NetError::new(NetErrorKind::Full, text));
        }
        *count += 1;
        Ok(Place { users: Arc::clone(&self.0), user })
    }

    /// Flows of all users.
    #[cfg(test)]
    pub(crate) fn flows(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
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
        let places: Vec<_> = (0..USER_FLOWS).map(|_| users.take(1).expect("there is room")).collect();
        assert_eq!(users.take(1).expect_err("it is full").kind, NetErrorKind::Full);
        assert!(users.take(2).is_ok());
        drop(places);
        assert_eq!(users.flows(), 0);
    }
}
