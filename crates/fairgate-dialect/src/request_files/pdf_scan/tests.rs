use std::io::Write;

use super::*;

fn scan(file: &[u8]) -> Option<PdfContent> {
    PdfScanBudget { read_bytes: 1 << 20, ..Default::default() }.scan(&base64::encode(file))
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn stream(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut object = format!("9 0 obj\n<<{dictionary}>>\nstream\r\n").into_bytes();
    object.extend(data);
    object.extend(b"\nendstream\nendobj\n");
    object
}

fn pdf(parts: &[&[u8]]) -> Vec<u8> {
    let mut file = b"%PDF-1.7\n".to_vec();
    parts.iter().for_each(|part| file.extend(*part));
    file
}

const PAGES: &[u8] = b"1 0 obj<</Type/Pages/Count 2/Kids[3 0 R 4 0 R]>>endobj\n\
    3 0 obj<</Type /Page>>endobj 4 0 obj<</Type/P#61ge>>endobj\n";

#[test]
fn pages_are_counted_in_the_open_and_in_object_streams() {
    assert_eq!(scan(&pdf(&[PAGES])).unwrap().pages, 2);
    let objects = stream("/Type/ObjStm/N 2/Filter/FlateDecode", &deflated(PAGES));
    assert_eq!(scan(&pdf(&[&objects])).unwrap().pages, 2);
    let plain = stream("/Type/ObjStm/N 2", PAGES);
    assert_eq!(scan(&pdf(&[&plain])).unwrap().pages, 2);
    // One page object may not be many pages, and many kids are many pages.
    let kids: String = (0..50).map(|kid| format!("{kid} 0 R ")).collect();
    let many = format!("1 0 obj<</Kids [{kids}]>>endobj 3 0 obj<</Type/Page>>endobj");
    assert_eq!(scan(&pdf(&[many.as_bytes()])).unwrap().pages, 50);
}

#[test]
fn streams_count_by_what_they_are_inflated_to() {
    let text = b"(words) Tj ".repeat(20_000);
    let content = stream("/Length 5/Filter[/FlateDecode]", &deflated(&text));
    let found = scan(&pdf(&[PAGES, &content])).unwrap();
    assert_eq!((found.pages, found.bytes), (2, text.len() as u64));
    let photo = stream("/Subtype/Image/Filter/DCTDecode", b"\xff\xd8 binary");
    assert_eq!(scan(&pdf(&[PAGES, &photo])).unwrap().pages, 2);
    // A few bytes that inflate to more than is looked at.
    let bomb = deflated(&vec![b' '; INFLATED_BYTES_MAX + 1]);
    assert_eq!(scan(&pdf(&[PAGES, &stream("/Filter/FlateDecode", &bomb)])), None);
}

/// One page may hold any amount of text, so its strings count, wherever and however often they are shown.
#[test]
fn text_counts_by_its_bytes() {
    let text = format!("BT ({}) Tj ET", "words ".repeat(10_000));
    let text_bytes = |parts: &[&[u8]]| scan(&pdf(parts)).unwrap().text_bytes;
    let packed = stream("/Filter/FlateDecode", &deflated(text.as_bytes()));
    assert_eq!(text_bytes(&[PAGES, &packed]), 60_000);
    let plain = stream("/Length 60000", text.as_bytes());
    assert_eq!(text_bytes(&[PAGES, &plain]), 60_000);
    let hex = format!("BT <{}> Tj ET", "77".repeat(10_000));
    let hex = stream("/Filter/FlateDecode", &deflated(hex.as_bytes()));
    assert_eq!(text_bytes(&[PAGES, &hex, &packed]), 70_000);
    // Three pages have the same content.
    let shared =
        b"3 0 obj<</Contents 9 0 R>> 4 0 obj<</Contents[9 0 R 9 0 R]>> 5 0 obj<</Contents 19 0 R>>";
    assert_eq!(text_bytes(&[shared, &packed]), 180_000);
    // What shows no text is no text, such as a font or a picture.
    let other = stream("/Filter/FlateDecode", &deflated(&b"(font) data ".repeat(1000)));
    assert_eq!(text_bytes(&[PAGES, &other]), 0);
    // A font that reads a whole text for each letter.
    let map = format!("1 beginbfchar <01> <{}> endbfchar", "0041".repeat(100));
    let map = stream("/Filter/FlateDecode", &deflated(map.as_bytes()));
    assert_eq!(scan(&pdf(&[PAGES, &map, &packed])), None);
}

#[test]
fn what_hides_pages_is_unreadable() {
    let secret = deflated(PAGES);
    let hidden: [Vec<u8>; 9] = [
        stream("/Type/ObjStm/Filter/FlateDecode", b"no deflate"),
        stream("/Type/ObjSt#6d/Filter 5 0 R", &secret),
        stream("/Type/ObjStm/Filter[/ASCII85Decode/FlateDecode]", &secret),
        stream("/Filter[/FlateDecode/FlateDecode]", &deflated(&secret)),
        stream("/Filter/LZWDecode", b"\x80\x0b"),
        stream("/Filter/FlateDecode/X(9 0 obj)", &secret),
        b"1 0 obj<</Kids 7 0 R>>endobj".to_vec(),
        b"1 0 obj<</Kids[3 0 R 3 0 R]>>endobj".to_vec(),
        b"1 0 obj<</Kids[3 0 R%]\n4 0 R]>>endobj".to_vec(),
    ];
    for part in hidden {
        assert_eq!(scan(&pdf(&[PAGES, &part])), None, "{}", String::from_utf8_lossy(&part));
    }
    let mut budget = PdfScanBudget { read_bytes: 10, ..Default::default() };
    assert_eq!(budget.scan(&base64::encode(&pdf(&[PAGES]))), None);
}

#[test]
fn every_cut_of_a_file_is_read_without_a_panic() {
    let objects = stream("/Type/ObjStm/N 2/Filter/FlateDecode", &deflated(PAGES));
    let file = pdf(&[PAGES, &objects]);
    for end in 0..file.len() {
        let _ = scan(&file[..end]);
    }
}
