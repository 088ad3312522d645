//! SHA-2 of bytes: `sha224`, `sha256`, `sha384` and `sha512`.
//!
//! The two shorter ones run over words of 32 bits, whose constants are the upper halves of those of
//! the longer ones; SHA-224 begins with the lower halves of what SHA-384 begins with.

/// Parts of the cube roots of the first 80 primes.
const ROUNDS: [u64; 80] = [
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
];
/// Parts of the square roots of the first 8 primes, and of the next 8.
const FIRST: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];
const NEXT: [u64; 8] = [
    0xcbbb_9d5d_c105_9ed8,
    0x629a_292a_367c_d507,
    0x9159_015a_3070_dd17,
    0x152f_ecd8_f70e_5939,
    0x6733_2667_ffc0_0b31,
    0x8eb4_4a87_6858_1511,
    0xdb0c_2e0d_64f9_8fa7,
    0x47b5_481d_befa_4fa4,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sha {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The bytes with their length behind them, in whole blocks.
fn padded(bytes: &[u8], block: usize) -> Vec<u8> {
    let length_bytes = block / 8;
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while !(padded.len() + length_bytes).is_multiple_of(block) {
        padded.push(0);
    }
    padded.extend(std::iter::repeat_n(0, length_bytes - 8));
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    padded
}

/// One block, for words of a kind: rotations of the schedule and of the rounds.
macro_rules! compress {
    ($word:ty, $state:ident, $block:ident, $rounds:expr, $constant:expr, $r:expr) => {{
        let rounds: usize = $rounds;
        let r: [u32; 12] = $r;
        let width = size_of::<$word>();
        let mut w: Vec<$word> = $block
            .chunks_exact(width)
            .map(|word| word.iter().fold(0, |n, b| n << 8 | <$word>::from(*b)))
            .collect();
        for t in 16..rounds {
            let (early, late) = (w[t - 15], w[t - 2]);
            let s0 = early.rotate_right(r[0]) ^ early.rotate_right(r[1]) ^ early >> r[2];
            let s1 = late.rotate_right(r[3]) ^ late.rotate_right(r[4]) ^ late >> r[5];
            let next = w[t - 16].wrapping_add(s0).wrapping_add(w[t - 7]);
            w.push(next.wrapping_add(s1));
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *$state;
        for t in 0..rounds {
            let s1 = e.rotate_right(r[6]) ^ e.rotate_right(r[7]) ^ e.rotate_right(r[8]);
            let choice = (e & f) ^ (!e & g);
            let constant: $word = $constant(t);
            let t1 = h.wrapping_add(s1).wrapping_add(choice);
            let t1 = t1.wrapping_add(constant).wrapping_add(w[t]);
            let s0 = a.rotate_right(r[9]) ^ a.rotate_right(r[10]) ^ a.rotate_right(r[11]);
            let majority = (a & b) ^ (a & c) ^ (b & c);
            (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
            (d, c, b) = (c, b, a);
            a = t1.wrapping_add(s0.wrapping_add(majority));
        }
        for (state, new) in $state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *state = state.wrapping_add(new);
        }
    }};
}

fn narrow(bytes: &[u8], mut state: [u32; 8]) -> Vec<u8> {
    const ROTATIONS: [u32; 12] = [7, 18, 3, 17, 19, 10, 6, 11, 25, 2, 13, 22];
    for block in padded(bytes, 64).chunks_exact(64) {
        let state = &mut state;
        let constant = |t: usize| (ROUNDS[t] >> 32) as u32;
        compress!(u32, state, block, 64, constant, ROTATIONS);
    }
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn wide(bytes: &[u8], mut state: [u64; 8]) -> Vec<u8> {
    const ROTATIONS: [u32; 12] = [1, 8, 7, 19, 61, 6, 14, 18, 41, 28, 34, 39];
    for block in padded(bytes, 128).chunks_exact(128) {
        let state = &mut state;
        let constant = |t: usize| ROUNDS[t];
        compress!(u64, state, block, 80, constant, ROTATIONS);
    }
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}

impl Sha {
    pub fn named(name: &str) -> Option<Sha> {
        Some(match name {
            "sha224" => Sha::Sha224,
            "sha256" => Sha::Sha256,
            "sha384" => Sha::Sha384,
            "sha512" => Sha::Sha512,
            _ => return None,
        })
    }

    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        let (mut hash, length) = match self {
            Sha::Sha224 => (narrow(bytes, NEXT.map(|w| w as u32)), 28),
            Sha::Sha256 => (narrow(bytes, FIRST.map(|w| (w >> 32) as u32)), 32),
            Sha::Sha384 => (wide(bytes, NEXT), 48),
            Sha::Sha512 => (wide(bytes, FIRST), 64),
        };
        hash.truncate(length);
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(sha: Sha, bytes: &[u8]) -> String {
        sha.of(bytes).iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        let begin = |sha, bytes: &[u8], begin: &str| assert_eq!(hex(sha, bytes)[..16], *begin);
        begin(Sha::Sha224, b"abc", "23097d223405d822");
        begin(Sha::Sha256, b"abc", "ba7816bf8f01cfea");
        begin(Sha::Sha384, b"abc", "cb00753f45a35e8b");
        begin(Sha::Sha512, b"abc", "ddaf35a193617aba");
        // Lengths at which the padding needs a block more.
        begin(Sha::Sha256, &[b'a'; 55], "9f4390f8d30c2dd9");
        begin(Sha::Sha256, &[b'a'; 56], "b35439a4ac6f0948");
        begin(Sha::Sha256, &[b'a'; 64], "ffe054fe7ae0cb6d");
        begin(Sha::Sha512, &[b'a'; 111], "fa9121c7b32b9e01");
        begin(Sha::Sha512, &[b'a'; 112], "c01d080efd492776");
        begin(Sha::Sha512, &[b'a'; 128], "b73d1929aa615934");
        begin(Sha::Sha384, &[b'a'; 1000], "f54480689c6b0b11");
        begin(Sha::Sha224, &[b'a'; 1000], "4e8f0ce90b64661a");
    }
}
