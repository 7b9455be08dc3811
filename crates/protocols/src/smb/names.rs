//! Names of commands, results and versions, as Suricata writes them.

const COMMANDS_2: [&str; 19] = [
    "NEGOTIATE_PROTOCOL",
    "SESSION_SETUP",
    "SESSION_LOGOFF",
    "TREE_CONNECT",
    "TREE_DISCONNECT",
    "CREATE",
    "CLOSE",
    "FLUSH",
    "READ",
    "WRITE",
    "LOCK",
    "IOCTL",
    "CANCEL",
    "KEEPALIVE",
    "FIND",
    "CHANGE_NOTIFY",
    "GET_INFO",
    "SET_INFO",
    "OPLOCK_BREAK",
];

const COMMANDS_1: &[(u16, &str)] = &[
    (0x00, "CREATE_DIRECTORY"),
    (0x01, "DELETE_DIRECTORY"),
    (0x02, "OPEN"),
    (0x04, "CLOSE"),
    (0x05, "FLUSH"),
    (0x06, "DELETE"),
    (0x07, "RENAME"),
    (0x08, "QUERY_INFORMATION"),
    (0x10, "CHECK_DIRECTORY"),
    (0x24, "LOCKING_ANDX"),
    (0x25, "TRANS"),
    (0x2b, "ECHO"),
    (0x2d, "OPEN_ANDX"),
    (0x2e, "READ_ANDX"),
    (0x2f, "WRITE_ANDX"),
    (0x32, "TRANS2"),
    (0x34, "FIND_CLOSE2"),
    (0x71, "TREE_DISCONNECT"),
    (0x72, "NEGOTIATE_PROTOCOL"),
    (0x73, "SESSION_SETUP_ANDX"),
    (0x74, "LOGOFF_ANDX"),
    (0x75, "TREE_CONNECT_ANDX"),
    (0xa0, "NT_TRANS"),
    (0xa2, "NT_CREATE_ANDX"),
    (0xa4, "NT_CANCEL"),
];

const RESULTS: &[(u32, &str)] = &[
    (0, "STATUS_SUCCESS"),
    (0x0000_0103, "STATUS_PENDING"),
    (0x8000_0005, "STATUS_BUFFER_OVERFLOW"),
    (0x8000_0006, "STATUS_NO_MORE_FILES"),
    (0xc000_0002, "STATUS_NOT_IMPLEMENTED"),
    (0xc000_0003, "STATUS_INVALID_INFO_CLASS"),
    (0xc000_0008, "STATUS_INVALID_HANDLE"),
    (0xc000_000d, "STATUS_INVALID_PARAMETER"),
    (0xc000_000f, "STATUS_NO_SUCH_FILE"),
    (0xc000_0010, "STATUS_INVALID_DEVICE_REQUEST"),
    (0xc000_0011, "STATUS_END_OF_FILE"),
    (0xc000_0016, "STATUS_MORE_PROCESSING_REQUIRED"),
    (0xc000_0022, "STATUS_ACCESS_DENIED"),
    (0xc000_0033, "STATUS_OBJECT_NAME_INVALID"),
    (0xc000_0034, "STATUS_OBJECT_NAME_NOT_FOUND"),
    (0xc000_0035, "STATUS_OBJECT_NAME_COLLISION"),
    (0xc000_003a, "STATUS_OBJECT_PATH_NOT_FOUND"),
    (0xc000_0043, "STATUS_SHARING_VIOLATION"),
    (0xc000_006d, "STATUS_LOGON_FAILURE"),
    (0xc000_00ba, "STATUS_FILE_IS_A_DIRECTORY"),
    (0xc000_00bb, "STATUS_NOT_SUPPORTED"),
    (0xc000_00c9, "STATUS_NETWORK_NAME_DELETED"),
    (0xc000_00cc, "STATUS_BAD_NETWORK_NAME"),
    (0xc000_0101, "STATUS_DIRECTORY_NOT_EMPTY"),
    (0xc000_0120, "STATUS_CANCELLED"),
    (0xc000_0128, "STATUS_FILE_CLOSED"),
    (0xc000_0203, "STATUS_USER_SESSION_DELETED"),
    (0xc000_0225, "STATUS_NOT_FOUND"),
    (0xc000_0275, "STATUS_NOT_A_REPARSE_POINT"),
];

/// The name of a command; its number if it has none here.
pub(super) fn command(version: u8, number: u16) -> String {
    let known = match version {
        1 => COMMANDS_1.iter().find(|known| known.0 == number).map(|known| known.1),
        _ => COMMANDS_2.get(usize::from(number)).copied(),
    };
    known.map_or_else(|| format!("SMB{version}_COMMAND_{number}"), |name| format!("SMB{version}_COMMAND_{name}"))
}

/// The name of a result, if it has one here.
pub(super) fn result(status: u32) -> Option<&'static str> {
    RESULTS.iter().find(|known| known.0 == status).map(|known| known.1)
}

/// The name of the version that a server chose; `None`: version 1, whose servers all choose this one.
pub(super) fn dialect(number: Option<u16>) -> String {
    match number {
        None => "NT LM 0.12".into(),
        Some(0x02ff) => "2.??".into(),
        Some(number) => format!("{:x}.{:02x}", number >> 8, number & 0xff),
    }
}
