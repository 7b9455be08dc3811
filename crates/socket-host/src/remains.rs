//! Errors of broken sockets, which their program may ask for later.

use std::collections::{HashMap, VecDeque};

/// The most sockets that are kept.
const REMEMBERED: usize = 4096;

/// Errors by inode of the program's end.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    errors: HashMap<u64, i32>,
    order: VecDeque<u64>,
}

impl Remains {
    /// A socket broke.
    pub(crate) fn put(&mut self, inode: u64, errno: i32) {
        if self.errors.insert(inode, errno).is_none() {
            self.order.push_back(inode);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.errors.remove(&oldest);
        }
    }

    /// Why a socket broke, returned once (like `SO_ERROR`); 0: it is unknown.
    pub(crate) fn take(&mut self, inode: u64) -> i32 {
        let errno = self.errno(inode);
        self.forget(inode);
        errno
    }

    /// A new socket has this inode: forgets the earlier one.
    pub(crate) fn forget(&mut self, inode: u64) {
        if self.errors.remove(&inode).is_some() {
            self.order.retain(|known| *known != inode);
        }
    }

    /// Why a socket broke; 0: it is unknown.
    pub(crate) fn errno(&self, inode: u64) -> i32 {
        self.errors.get(&inode).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_remembered() {
        let mut remains = Remains::default();
        (0..2 * REMEMBERED as u64).for_each(|inode| remains.put(inode, inode as i32));
        assert_eq!((remains.errno(5), remains.errno(REMEMBERED as u64)), (0, REMEMBERED as i32));
        assert_eq!(remains.take(REMEMBERED as u64), REMEMBERED as i32);
        assert_eq!((remains.errno(REMEMBERED as u64), remains.errors.len()), (0, remains.order.len()));
    }
}
