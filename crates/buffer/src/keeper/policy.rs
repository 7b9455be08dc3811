//! Who may do what with a ring, decided by the kernel's word on who is at the other end of a socket.

use std::fmt;
use std::str::FromStr;

/// Whoever is at the other end of a socket, as the kernel says (SO_PEERCRED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process when it connected; for people, and for rights of one process.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its group; of a peer, of all its groups that of who made the ring, if it is in that.
    pub group: u32,
}

/// How far a right reaches. Each includes those before it; root has all rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reach {
    /// Nobody but the process that made the ring.
    Process,
    /// The user who made the ring.
    User,
    /// Members of the group of who made the ring.
    Group,
    /// Everybody.
    Other,
}

impl Reach {
    const ALL: [Reach; 4] = [Reach::Process, Reach::User, Reach::Group, Reach::Other];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Reach::Process => "process",
            Reach::User => "user",
            Reach::Group => "group",
            Reach::Other => "other",
        }
    }

    /// From its number.
    pub fn from_code(code: u8) -> Option<Reach> {
        Reach::ALL.into_iter().find(|reach| *reach as u8 == code)
    }

    /// Does it reach `peer`, where `owner` made the ring?
    pub fn covers(self, owner: Peer, peer: Peer) -> bool {
        peer.user == 0
            || match self {
                // 0 is who cannot be seen from here: there may be many.
                Reach::Process => peer.process != 0 && peer == owner,
                Reach::User => peer.user == owner.user,
                Reach::Group => peer.user == owner.user || peer.group == owner.group,
                Reach::Other => true,
            }
    }
}

impl FromStr for Reach {
    type Err = String;

    fn from_str(text: &str) -> Result<Reach, String> {
        Reach::ALL
            .into_iter()
            .find(|reach| reach.name() == text)
            .ok_or_else(|| format!("nobody is called `{text}`: there are process, user, group and other"))
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The policy of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Who may read without holding (Overwrite and Shared), and look at its state.
    pub read: Reach,
    /// Who may hold the ring (Wait and DropNewest), if they may read it.
    pub hold: Reach,
    /// Who may write.
    pub write: Reach,
}

impl Default for Policy {
    /// The user who made the ring, and nobody else.
    fn default() -> Self {
        Policy { read: Reach::User, hold: Reach::User, write: Reach::User }
    }
}

impl Policy {
    /// The farthest any right reaches: whom the socket's mode must let in to ask.
    pub fn farthest(&self) -> Reach {
        self.read.max(self.write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reach_covers_whom_it_should() {
        let owner = Peer { process: 10, user: 1000, group: 100 };
        let peers = [
            ("the process itself", owner),
            ("the same user", Peer { process: 11, ..owner }),
            ("the same group", Peer { process: 12, user: 1001, group: 100 }),
            ("somebody else", Peer { process: 13, user: 1002, group: 102 }),
            ("root", Peer { process: 14, user: 0, group: 0 }),
        ];
        let rows = [
            (Reach::Process, [true, false, false, false, true]),
            (Reach::User, [true, true, false, false, true]),
            (Reach::Group, [true, true, true, false, true]),
            (Reach::Other, [true, true, true, true, true]),
        ];
        let unseen = Peer { process: 0, ..owner };
        assert!(!Reach::Process.covers(unseen, unseen), "from another PID namespace");
        for (reach, expected) in rows {
            for ((who, peer), expected) in peers.iter().zip(expected) {
                assert_eq!(reach.covers(owner, *peer), expected, "{reach}: {who}");
            }
        }
    }
}
