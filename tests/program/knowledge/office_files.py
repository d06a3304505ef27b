"""Small real PDF and Word files, written byte by byte."""

import io
import zipfile

from pypdf import PdfReader, PdfWriter

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PARTS = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Target="word/document.xml" Type='
    '"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/></Relationships>',
    "word/styles.xml": f'<w:styles xmlns:w="{WORD}">'
    + "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2)
    )
    + "</w:styles>",
    "word/_rels/document.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Target="styles.xml" Type='
    '"http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles"/></Relationships>',
}


def docx(body):
    """A Word file of paragraphs, each (style, text), and tables, each a list of rows of cells."""
    written = ""
    for part in body:
        if isinstance(part, tuple):
            style = f'<w:pPr><w:pStyle w:val="{part[0]}"/></w:pPr>' if part[0] else ""
            written += f"<w:p>{style}<w:r><w:t>{part[1]}</w:t></w:r></w:p>"
        else:
            rows = ("".join(f"<w:tc><w:p><w:r><w:t>{c}</w:t></w:r></w:p></w:tc>" for c in row) for row in part)
            written += "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in PARTS.items():
            file.writestr(name, text)
        file.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{written}</w:body></w:document>')
    return stream.getvalue()


def pdf(pages, title="", bookmarks=(), password=None):
    """A PDF whose pages are lists of lines; `bookmarks` are (title, page from 1); encrypted when a password is given."""
    objects = ["<</Type/Catalog/Pages 2 0 R>>", "", "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    for lines in pages:
        shown = "".join(f"({line}) Tj T* " for line in lines)
        stream = f"BT /F1 11 Tf 13 TL 50 780 Td {shown}ET"
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
        size = "/MediaBox[0 0 595 842]/Resources<</Font<</F1 3 0 R>>>>"
        objects.append(f"<</Type/Page/Parent 2 0 R{size}/Contents {len(objects)} 0 R>>")
    kids = " ".join(f"{5 + 2 * n} 0 R" for n in range(len(pages)))
    objects[1] = f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>"
    content, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj{text}endobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    start = len(content)
    content += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode()
    content += f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n".encode()
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    if title:
        writer.add_metadata({"/Title": title})
    for name, page in bookmarks:
        writer.add_outline_item(name, page - 1)
    if password is not None:
        writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    stream_ = io.BytesIO()
    writer.write(stream_)
    return stream_.getvalue()
