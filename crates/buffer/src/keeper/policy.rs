//! Rights on a ring. The kernel says which process is at the other end of a socket.

use std::fmt;
use std::str::FromStr;

/// The process at the other end of a socket, as the kernel says (SO_PEERCRED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id when it connected: shown to users, and for rights of a single process.
    pub process: i32,
    /// Its user id.
    pub user: u32,
    /// Its group id. For a peer: the owner's group, if the peer is in that by any of its groups.
    pub group: u32,
}

/// How far a right reaches. Each value includes those before it; root has all rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reach {
    /// Only the process that made the ring.
    Process,
    /// The user who made the ring.
    User,
    /// Members of the group of the ring's owner.
    Group,
    /// All users.
    Other,
}

impl Reach {
    const ALL: [Reach; 4] = [Reach::Process, Reach::User, Reach::Group, Reach::Other];

    /// Name in requests and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Reach::Process => "process",
            Reach::User => "user",
            Reach::Group => "group",
            Reach::Other => "other",
        }
    }

    /// Decodes a number.
    pub fn from_code(code: u8) -> Option<Reach> {
        Reach::ALL.into_iter().find(|reach| *reach as u8 == code)
    }

    /// Whether the right reaches `peer`, where `owner` made the ring.
    pub fn covers(self, owner: Peer, peer: Peer) -> bool {
        peer.user == 0
            || match self {
                // 0 stands for any process that cannot be seen from here; there may be many.
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
    /// Rights to read without holding (Overwrite and Shared), and to ask for the ring's state.
    pub read: Reach,
    /// Rights to hold the ring (Wait and DropNewest), for peers that may read it.
    pub hold: Reach,
    /// Rights to write.
    pub write: Reach,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { read: Reach::User, hold: Reach::User, write: Reach::User }
    }
}

impl Policy {
    /// The farthest reach of all rights: the socket's mode must let these users connect.
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
