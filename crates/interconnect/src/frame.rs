//! The format of what goes between two instances. A frame has a fixed header, extensions whose
//! number the header tells, and a payload.
//!
//! ```text
//! byte  0 magic u32            | 4 version u16      | 6 lane u8 | 7 role u8
//!       8 database u64
//!      16 database incarnation u32                  | 20 sender's incarnation u32
//!      24 epoch u64
//!      32 sender u16 | 34 kind u16                  | 36 payload bytes u32
//!      40 request u64
//!      48 SCN u64, the sender's clock when it sent
//!      56 sequence u64, of this frame on its connection, from 1
//!      64 sent ns u64, the sender's monotonic clock
//!      72 commit notes u16 | 74 block bytes u16     | 76 CRC32C of the payload u32
//!      80 zero, 12 bytes                            | 92 CRC32C of header and extensions u32
//!      96 commit notes, 24 bytes each: instance u16, 6 zero bytes, group u64, SCN u64
//!         service record, 40 bytes, in replies only:
//!         received ns, queue ns, pin ns, build ns, flush ns, all u64
//!         payload: a message, then the block, if there is one
//! ```
//!
//! All numbers are little endian.
//!
//! **Invariants.** What is not exactly as above is refused, zeros included, so that a later version
//! can use them. A header's checksum is checked before any length in the header is used. Nothing
//! here allocates by a length that the other side chose.

use block::{InstanceId, Scn};

pub const MAGIC: u32 = u32::from_le_bytes(*b"BRIC");
/// The version of the frames, of the proof before them, and of everything that goes in payloads. It
/// is raised with each change of what instances say to each other, so that a build that says it
/// otherwise is refused by name.
///
/// - 2: requests that stand ahead of others are told by their numbers in walks; a request for a
///   lock says what its owner uses already.
/// - 3: answers about transactions, locks and groups say what they took.
/// - 4: a wait for a transaction says since when its session looked, and ends at a rollback to a
///   savepoint.
/// - 5: orders to sessions and questions for views say by whose rights they are given; a deadlock
///   says of which roles its sessions are; the sessions of a role are asked for.
/// - 5, too: a table lock has one queue at its master; rows have sharers, who are asked for; who
///   waits for a transaction says for which row or unique key.
pub const VERSION: u16 = 5;
pub const HEADER_BYTES: usize = 96;
pub const NOTE_BYTES: usize = 24;
pub const SERVICE_BYTES: usize = 40;
/// The most notes in a frame: one for each instance that there can be.
pub const MAX_NOTES: usize = block::FileId::MAX_INSTANCES as usize;
/// The most bytes in a payload: thirty-two blocks. A block with what goes with it is far less, and
/// a longer list is sent in pieces.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 10;
/// The most bytes before a payload.
pub const MAX_HEAD_BYTES: usize = HEADER_BYTES + MAX_NOTES * NOTE_BYTES + SERVICE_BYTES;

/// One of the connections between two instances. Frames of one lane arrive in the order in which
/// they were sent. Lanes are independent of each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane(pub(crate) u8);

impl Lane {
    /// The lane of invalidations, acknowledgements, SCNs and heartbeats, which never stand behind a
    /// block.
    pub const CONTROL: Lane = Lane(0);

    /// The lane of LMS number `n`, from 0.
    pub fn lms(n: u8) -> Lane {
        assert!(n < u8::MAX, "invariant: LMS are numbered below 255");
        Lane(n + 1)
    }
    /// The number of the LMS whose lane this is. None for the control lane.
    pub fn lms_number(self) -> Option<u8> {
        self.0.checked_sub(1)
    }
}

/// One life of an instance: its number and the incarnation it got when it joined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    pub instance: InstanceId,
    pub incarnation: u32,
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "instance {}.{}", self.instance.0, self.incarnation)
    }
}

/// The database that the members of a cluster have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub database: u64,
    pub incarnation: u32,
}

/// The role of a frame in a request and its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    OneWay = 0,
    /// A session waits for the reply.
    Request = 1,
    /// A reply to the session that made the request with this number.
    Reply = 2,
}

/// The note "group `group` of this instance's redo thread is durable and commits at `scn`".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitNote {
    pub instance: InstanceId,
    pub group: u64,
    pub scn: Scn,
}

/// Where the time of a request went at the instance that served it. `received_ns` is a moment by
/// that instance's monotonic clock; the others are durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceTimes {
    pub received_ns: u64,
    pub queue_ns: u64,
    pub pin_ns: u64,
    pub build_ns: u64,
    pub flush_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub cluster: Cluster,
    pub from: Member,
    pub lane: Lane,
    pub role: Role,
    /// The kind of the message, which means something to the service. Kinds from [`KIND_RESERVED`]
    /// on are the interconnect's own.
    pub kind: u16,
    pub epoch: u64,
    pub request: u64,
    pub scn: Scn,
    pub sequence: u64,
    pub sent_ns: u64,
    pub payload_bytes: u32,
    /// How many of the payload's last bytes are a block.
    pub block_bytes: u16,
    pub payload_crc: u32,
    /// The times of the service, in replies only.
    pub service: Option<ServiceTimes>,
}

pub const KIND_RESERVED: u16 = 0xff00;
pub(crate) const KIND_HEARTBEAT: u16 = 0xff01;

/// Why a frame was refused. Its connection is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("not a frame: it begins with {0:#010x}")]
    Magic(u32),
    #[error("format version {0}, this program knows {VERSION}")]
    Version(u16),
    #[error("the checksum of a header is wrong")]
    HeaderChecksum,
    #[error("the checksum of a payload is wrong")]
    PayloadChecksum,
    #[error("a payload of {0} bytes, at most {MAX_PAYLOAD_BYTES} are allowed")]
    TooLong(u32),
    #[error("{0} commit notes, at most {MAX_NOTES} are allowed")]
    TooManyNotes(u16),
    #[error("a block of {0} bytes in a payload of {1}")]
    Block(u16, u32),
    #[error("the frame contradicts what is known of group {group} of instance {instance}")]
    Contradiction { instance: u16, group: u64 },
    #[error("no such role: {0}")]
    Role(u8),
    #[error("no such instance: {0}")]
    Instance(u16),
    #[error("SCN {0} is above the greatest there is")]
    Scn(u64),
    #[error("bytes that must be zero in this version are not zero")]
    Reserved,
    #[error("the frame is of another database, or of another incarnation of it")]
    Cluster,
    #[error("the frame says it is from {0}, the connection is from {1}")]
    Sender(Member, Member),
    #[error("the frame is for another lane")]
    Lane,
    #[error("frame {found} came where {expected} was to come")]
    Sequence { expected: u64, found: u64 },
}

impl Header {
    /// Appends header, notes and service record.
    pub fn encode(&self, notes: &[CommitNote], to: &mut Vec<u8>) {
        assert!(
            self.payload_bytes as usize <= MAX_PAYLOAD_BYTES
                && u32::from(self.block_bytes) <= self.payload_bytes
                && notes.len() <= MAX_NOTES
                && self.service.is_some() == (self.role == Role::Reply),
            "invariant: a frame is well formed before it leaves"
        );
        let start = to.len();
        to.extend(MAGIC.to_le_bytes());
        to.extend(VERSION.to_le_bytes());
        to.push(self.lane.0);
        to.push(self.role as u8);
        to.extend(self.cluster.database.to_le_bytes());
        to.extend(self.cluster.incarnation.to_le_bytes());
        to.extend(self.from.incarnation.to_le_bytes());
        to.extend(self.epoch.to_le_bytes());
        to.extend(self.from.instance.0.to_le_bytes());
        to.extend(self.kind.to_le_bytes());
        to.extend(self.payload_bytes.to_le_bytes());
        to.extend(self.request.to_le_bytes());
        to.extend(self.scn.0.to_le_bytes());
        to.extend(self.sequence.to_le_bytes());
        to.extend(self.sent_ns.to_le_bytes());
        to.extend((notes.len() as u16).to_le_bytes());
        to.extend(self.block_bytes.to_le_bytes());
        to.extend(self.payload_crc.to_le_bytes());
        to.extend([0; 16]);
        for n in notes {
            to.extend(n.instance.0.to_le_bytes());
            to.extend([0; 6]);
            to.extend(n.group.to_le_bytes());
            to.extend(n.scn.0.to_le_bytes());
        }
        if let Some(s) = &self.service {
            for v in [s.received_ns, s.queue_ns, s.pin_ns, s.build_ns, s.flush_ns] {
                to.extend(v.to_le_bytes());
            }
        }
        let crc = head_crc(&to[start..]);
        to[start + CRC_AT..start + HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
}

const CRC_AT: usize = 92;

/// The checksum over header and extensions, without the field itself.
fn head_crc(head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..CRC_AT]), &head[HEADER_BYTES..])
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}

/// How many bytes come before the payload of the frame that begins with `header`. Plain mistakes
/// are refused here, all others by [`decode`].
pub fn head_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, FrameError> {
    let magic = u32_at(header, 0);
    if magic != MAGIC {
        return Err(FrameError::Magic(magic));
    }
    let version = u16_at(header, 4);
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let notes = u16_at(header, 72);
    if notes as usize > MAX_NOTES {
        return Err(FrameError::TooManyNotes(notes));
    }
    let service = match header[7] {
        role if role == Role::Reply as u8 => SERVICE_BYTES,
        _ => 0,
    };
    Ok(HEADER_BYTES + notes as usize * NOTE_BYTES + service)
}

/// Reads header and extensions; `head` is as long as [`head_bytes`] said. The commit notes go to
/// `note` one by one.
pub fn decode(head: &[u8], mut note: impl FnMut(CommitNote)) -> Result<Header, FrameError> {
    if head_crc(head) != u32_at(head, CRC_AT) {
        return Err(FrameError::HeaderChecksum);
    }
    if head[80..CRC_AT].iter().any(|&b| b != 0) {
        return Err(FrameError::Reserved);
    }
    let role = match head[7] {
        0 => Role::OneWay,
        1 => Role::Request,
        2 => Role::Reply,
        other => return Err(FrameError::Role(other)),
    };
    let payload_bytes = u32_at(head, 36);
    if payload_bytes as usize > MAX_PAYLOAD_BYTES {
        return Err(FrameError::TooLong(payload_bytes));
    }
    let block_bytes = u16_at(head, 74);
    if u32::from(block_bytes) > payload_bytes {
        return Err(FrameError::Block(block_bytes, payload_bytes));
    }
    let notes_end = HEADER_BYTES + u16_at(head, 72) as usize * NOTE_BYTES;
    for n in head[HEADER_BYTES..notes_end].chunks_exact(NOTE_BYTES) {
        if n[2..8].iter().any(|&b| b != 0) {
            return Err(FrameError::Reserved);
        }
        note(CommitNote {
            instance: instance(u16_at(n, 0))?,
            group: u64_at(n, 8),
            scn: scn(u64_at(n, 16))?,
        });
    }
    Ok(Header {
        cluster: Cluster {
            database: u64_at(head, 8),
            incarnation: u32_at(head, 16),
        },
        from: Member {
            instance: instance(u16_at(head, 32))?,
            incarnation: u32_at(head, 20),
        },
        lane: Lane(head[6]),
        role,
        kind: u16_at(head, 34),
        epoch: u64_at(head, 24),
        request: u64_at(head, 40),
        scn: scn(u64_at(head, 48))?,
        sequence: u64_at(head, 56),
        sent_ns: u64_at(head, 64),
        payload_bytes,
        block_bytes,
        payload_crc: u32_at(head, 76),
        service: (role == Role::Reply).then(|| ServiceTimes {
            received_ns: u64_at(head, notes_end),
            queue_ns: u64_at(head, notes_end + 8),
            pin_ns: u64_at(head, notes_end + 16),
            build_ns: u64_at(head, notes_end + 24),
            flush_ns: u64_at(head, notes_end + 32),
        }),
    })
}

fn instance(n: u16) -> Result<InstanceId, FrameError> {
    if (1..=block::FileId::MAX_INSTANCES).contains(&n) {
        Ok(InstanceId(n))
    } else {
        Err(FrameError::Instance(n))
    }
}

fn scn(n: u64) -> Result<Scn, FrameError> {
    if n <= Scn::MAX.0 {
        Ok(Scn(n))
    } else {
        Err(FrameError::Scn(n))
    }
}

/// The checksum of a payload that is sent in parts.
pub fn payload_crc(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, p| crc32c::crc32c_append(crc, p))
}

/// A damaged head with its checksum made right, as a faulty or newer program would send it.
#[cfg(test)]
pub(crate) fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let crc = head_crc(&frame[..HEADER_BYTES]);
    frame[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Header, Vec<CommitNote>) {
        let header = Header {
            cluster: Cluster {
                database: 0x1122_3344_5566_7788,
                incarnation: 2,
            },
            from: Member {
                instance: InstanceId(3),
                incarnation: 9,
            },
            lane: Lane::lms(1),
            role: Role::Reply,
            kind: 0x0b0a,
            epoch: 5,
            request: 77,
            scn: Scn(1000),
            sequence: 4,
            sent_ns: 123_456,
            payload_bytes: 8200,
            block_bytes: 8192,
            payload_crc: 0xdead_beef,
            service: Some(ServiceTimes {
                received_ns: 1,
                queue_ns: 2,
                pin_ns: 3,
                build_ns: 4,
                flush_ns: 5,
            }),
        };
        let notes = vec![CommitNote {
            instance: InstanceId(2),
            group: 31,
            scn: Scn(999),
        }];
        (header, notes)
    }

    fn read(bytes: &[u8]) -> Result<(Header, Vec<CommitNote>), FrameError> {
        let first = bytes[..HEADER_BYTES].try_into().unwrap();
        let n = head_bytes(first)?;
        let mut notes = Vec::new();
        // A damaged count may promise more bytes than there are. A connection would wait for them.
        let head = bytes.get(..n).ok_or(FrameError::HeaderChecksum)?;
        let header = decode(head, |n| notes.push(n))?;
        Ok((header, notes))
    }

    #[test]
    fn the_bytes_are_pinned() {
        let (header, notes) = sample();
        let mut bytes = Vec::new();
        header.encode(&notes, &mut bytes);
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "42524943",
                "0500",
                "02",
                "02",
                "8877665544332211",
                "02000000",
                "09000000",
                "0500000000000000",
                "0300",
                "0a0b",
                "08200000",
                "4d00000000000000",
                "e803000000000000",
                "0400000000000000",
                "40e2010000000000",
                "0100",
                "0020",
                "efbeadde",
                "000000000000000000000000",
                "CRC_____",
                "0200",
                "000000000000",
                "1f00000000000000",
                "e703000000000000",
                "0100000000000000",
                "0200000000000000",
                "0300000000000000",
                "0400000000000000",
                "0500000000000000",
            )
            .replace("CRC_____", &hex[184..192])
        );
        assert_eq!(read(&bytes).unwrap(), (header, notes));
    }

    #[test]
    fn every_flipped_bit_of_a_head_is_noticed() {
        let (header, notes) = sample();
        let mut bytes = Vec::new();
        header.encode(&notes, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
    }

    /// Right checksums around wrong contents, as a faulty or newer program would send them.
    #[test]
    fn well_summed_nonsense_is_refused() {
        let (header, notes) = sample();
        let mut bytes = Vec::new();
        header.encode(&notes, &mut bytes);
        let refused = |at: usize, value: &[u8]| {
            let mut b = bytes.clone();
            b[at..at + value.len()].copy_from_slice(value);
            let crc = head_crc(&b);
            b[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            read(&b).unwrap_err()
        };
        let other = VERSION - 1;
        assert_eq!(refused(4, &other.to_le_bytes()), FrameError::Version(other));
        assert_eq!(refused(32, &[0, 0]), FrameError::Instance(0));
        assert_eq!(refused(32, &[101, 0]), FrameError::Instance(101));
        assert_eq!(refused(96, &[0, 1]), FrameError::Instance(256));
        assert_eq!(refused(36, &[1, 0, 4, 0]), FrameError::TooLong(0x40001));
        assert_eq!(refused(72, &[101, 0]), FrameError::TooManyNotes(101));
        assert_eq!(refused(74, &[9, 32]), FrameError::Block(8201, 8200));
        assert_eq!(refused(91, &[1]), FrameError::Reserved);
        assert_eq!(refused(99, &[1]), FrameError::Reserved);
        assert!(matches!(refused(55, &[0x80]), FrameError::Scn(_)));
        let mut three = bytes.clone();
        three[7] = 3;
        three.truncate(HEADER_BYTES + NOTE_BYTES);
        let crc = head_crc(&three);
        three[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(read(&three).unwrap_err(), FrameError::Role(3));
    }
}
