//! The user of a daemon that root starts: `streamline`, or `nobody` if there is no such user.

use std::fmt;

/// The daemon's own user.
pub const NAME: &str = "streamline";

/// The number of `nobody` if no file has it.
const NOBODY: u32 = 65_534;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name, or its number if it has none.
    pub name: String,
    /// Its number.
    pub user: u32,
    /// The number of its primary group.
    pub group: u32,
}

impl Account {
    /// The user that the daemon becomes.
    pub fn of_daemon() -> Account {
        of_daemon(&passwd())
    }

    /// Whether it is a user for the daemon alone, and not `nobody`.
    pub fn is_own(&self) -> bool {
        self.name == NAME
    }

    /// The user of this process.
    pub fn of_this_process() -> Account {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let known = accounts(&passwd()).find(|account| account.user == user);
        Account { name: known.map_or(user.to_string(), |account| account.name), user, group }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The users of this machine that are in its own file.
fn passwd() -> String {
    std::fs::read_to_string("/etc/passwd").unwrap_or_default()
}

fn accounts(passwd: &str) -> impl Iterator<Item = Account> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _, user, group) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        Some(Account { name: name.into(), user: user.parse().ok()?, group: group.parse().ok()? })
    })
}

fn of_daemon(passwd: &str) -> Account {
    // A user with root's number is root under another name; a user in root's group can use root's files.
    let is_roots = |account: &Account| account.user == 0 || account.group == 0;
    let named = |name: &str| accounts(passwd).find(|account| account.name == name && !is_roots(account));
    let nobody = || Account { name: "nobody".into(), user: NOBODY, group: NOBODY };
    named(NAME).or_else(|| named("nobody")).unwrap_or_else(nobody)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_streamline_or_nobody_and_never_root() {
        let nobody = "root:x:0:0:root:/root:/bin/sh\nnobody:x:99:98:nobody:/:/sbin/nologin\n";
        for (passwd, expected) in [
            (format!("{nobody}streamline:x:990:989::/:/sbin/nologin\n"), ("streamline", 990, 989)),
            (format!("{nobody}streamline:x:0:0::/:/bin/sh\n"), ("nobody", 99, 98)),
            (format!("{nobody}streamline:x:990:0::/:/bin/sh\n"), ("nobody", 99, 98)),
            (format!("{nobody}streamline:x:many:0::/:/bin/sh\n"), ("nobody", 99, 98)),
            (nobody.into(), ("nobody", 99, 98)),
            ("nobody:x:0:0::/:/bin/sh".into(), ("nobody", NOBODY, NOBODY)),
            (String::new(), ("nobody", NOBODY, NOBODY)),
        ] {
            let Account { name, user, group } = of_daemon(&passwd);
            assert_eq!((name.as_str(), user, group), expected, "{passwd}");
        }
    }
}
