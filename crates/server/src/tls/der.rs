//! The two facts of a certificate (X.509, in DER) that rustls does not tell: the hash of its
//! signature, and the common name of its subject.
//!
//! Total: whatever the bytes, the answer is a value or `None`.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
/// The version of a certificate; those of the first version leave it out.
const VERSION: u8 = 0xa0;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 1.2.840.113549.1.1: the last number says which hash an RSA signature has.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
/// 1.2.840.10045.4.3: likewise for ECDSA.
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];

/// Elements one after the other.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The tag and the content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The length of the length; no certificate is longer than 4 bytes can say.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = bytes.iter().fold(0, |n, &b| n << 8 | usize::from(b));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn tagged(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (tag, content) = self.next()?;
        (tag == wanted).then_some(content)
    }

    fn sequence(&mut self) -> Option<Elements<'a>> {
        self.tagged(SEQUENCE).map(Elements)
    }
}

/// The hash with which the certificate is hashed for `tls-server-end-point`: that of its signature,
/// and SHA-256 for MD5 and SHA-1 (RFC 5929, 4.1). `None` if the signature names none that we have.
pub fn signature_hash(certificate: &[u8]) -> Option<&'static Algorithm> {
    let mut outer = Elements(certificate).sequence()?;
    outer.sequence()?;
    let algorithm = outer.sequence()?.tagged(OBJECT)?;
    let (&which, family) = algorithm.split_last()?;
    match (family, which) {
        (RSA, 4 | 5 | 11) | (ECDSA, 2) => Some(&SHA256),
        (RSA, 12) | (ECDSA, 3) => Some(&SHA384),
        (RSA, 13) | (ECDSA, 4) => Some(&SHA512),
        _ => None,
    }
}

/// The first common name of the certificate's subject. `None` if it has none, or one with a zero
/// byte, which other programs would read as its end.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let mut fields = Elements(certificate).sequence()?.sequence()?;
    let (first, _) = fields.next()?;
    if first == VERSION {
        // The serial number.
        fields.next()?;
    }
    let _signature = fields.sequence()?;
    let _issuer = fields.sequence()?;
    let _validity = fields.sequence()?;
    let mut subject = fields.sequence()?;
    while !subject.0.is_empty() {
        let mut parts = Elements(subject.tagged(SET)?);
        while !parts.0.is_empty() {
            let mut part = parts.sequence()?;
            if part.tagged(OBJECT)? == COMMON_NAME {
                return text(part.next()?);
            }
        }
    }
    None
}

fn text((tag, bytes): (u8, &[u8])) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_known = match tag {
        UTF8_STRING => true,
        PRINTABLE_STRING | TELETEX_STRING | IA5_STRING => text.is_ascii(),
        _ => false,
    };
    (is_known && !text.contains('\0')).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    fn certificate(name: &str, key: &KeyPair) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "somebody else");
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(key).unwrap().der().to_vec()
    }

    #[test]
    fn a_name_and_a_hash_are_read() {
        let key = KeyPair::generate().unwrap();
        let ann = certificate("änn, \"x\"", &key);
        assert_eq!(common_name(&ann).as_deref(), Some("änn, \"x\""));
        assert_eq!(signature_hash(&ann), Some(&SHA256));
        let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        assert_eq!(signature_hash(&certificate("x", &key)), Some(&SHA384));
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        assert_eq!(signature_hash(&certificate("x", &key)), None);
        // A name that ends early for a program that reads up to a zero.
        let bad = certificate("ann\0.example.org", &KeyPair::generate().unwrap());
        assert_eq!(common_name(&bad), None);
    }

    /// A client shows any bytes it likes.
    #[test]
    fn fuzz_certificates() {
        let seed = crate::testing::seed("BRAID_FUZZ_SEED");
        let mut random = crate::testing::Random::new(seed);
        let good = certificate("ann", &KeyPair::generate().unwrap());
        let mut named = 0;
        for _ in 0..50_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.next() as u8),
                }
            }
            // Whatever it says, it returns.
            named += usize::from(common_name(&bytes).is_some());
            let _ = signature_hash(&bytes);
        }
        assert!(named > 0, "no damaged certificate was read to its name");
    }
}
