"""Four small databases of different subjects, each with questions and the SELECT that answers them."""

import sqlite3

CLINIC = {
    "visits.csv": """\
visit_ref,visited_on,department,doctor,wait_minutes,fee_eur,outcome,follow_up
V-1001,2025-01-08,Cardiology,Amelie Roux,35,120.00,treated,yes
V-1002,2025-01-15,Dermatology,Tom Beck,12,80.50,treated,no
V-1003,2025-02-03,Cardiology,Amelie Roux,58,140.00,referred,yes
V-1004,2025-02-20,Paediatrics,Ines Costa,20,60.00,treated,no
V-1005,2025-03-11,Dermatology,Tom Beck,44,95.00,missed,no
V-1006,2025-03-12,Cardiology,Sven Dahl,75,210.00,admitted,yes
V-1007,2025-04-02,Paediatrics,Ines Costa,15,60.00,treated,no
V-1008,2025-04-18,Paediatrics,Ines Costa,9,55.00,missed,yes
V-1009,2025-05-05,Dermatology,Lena Fox,27,88.00,treated,no
V-1010,2025-06-21,Cardiology,Sven Dahl,62,130.00,treated,yes
"""
}
CLINIC_QUESTIONS = [
    ("How many visits were there to cardiology?", "SELECT COUNT(*) FROM visits WHERE department='Cardiology'"),
    ("What is the average wait in dermatology?", "SELECT ROUND(AVG(wait_minutes),2) FROM visits WHERE department='Dermatology'"),
    ("Total fees for Tom Beck?", "SELECT SUM(fee_eur) FROM visits WHERE doctor='Tom Beck'"),
    ("How many visits in March 2025 were missed?", "SELECT COUNT(*) FROM visits WHERE visited_on LIKE '2025-03%' AND outcome='missed'"),
    ("What happened at visit V-1006?", "SELECT outcome FROM visits WHERE visit_ref='V-1006'"),
    ("Which was the most expensive visit?", "SELECT visit_ref, fee_eur FROM visits ORDER BY fee_eur DESC LIMIT 1"),
    ("How many pediatrics visits cost less than 60 euros?", "SELECT COUNT(*) FROM visits WHERE department='Paediatrics' AND fee_eur<60"),
]  # fmt: skip

LIBRARY = """
CREATE TABLE members (id INTEGER PRIMARY KEY, name TEXT, town TEXT, joined_on DATE, age INTEGER);
CREATE TABLE loans (loan_id INTEGER PRIMARY KEY, member_id INTEGER REFERENCES members(id), title TEXT, genre TEXT,
                    borrowed_on DATE, returned_on DATE, fine_gbp NUMERIC);
INSERT INTO members VALUES (1,'Ada Moss','Whitby','2019-04-02',34),(2,'Bo Lind','York','2020-09-14',61),
 (3,'Cy Hart','York','2021-01-30',19),(4,'Di Wren','Malton','2023-06-11',45);
INSERT INTO loans VALUES (501,1,'Deep Tides','crime','2024-01-05','2024-01-20',0),
 (502,2,'Moor Songs','poetry','2024-01-09','2024-02-28',4.5),(503,2,'Iron Year','history','2024-02-01','2024-02-10',0),
 (504,3,'Deep Tides','crime','2024-02-14',NULL,NULL),(505,3,'Red Kites','nature','2024-03-03','2024-03-09',0),
 (506,1,'Cold Quay','crime','2024-03-21','2024-05-02',6.25),(507,4,'Moor Songs','poetry','2024-04-04',NULL,NULL),
 (508,2,'Old Roads','history','2024-05-19','2024-06-01',0.75);
"""
LIBRARY_QUESTIONS = [
    ("How many members live in York?", "SELECT COUNT(*) FROM members WHERE town='York'"),
    ("How many loans were made by members from York?", "SELECT COUNT(*) FROM loans WHERE member_id IN (2,3)"),
    ("What was the total of fines for crime loans?", "SELECT SUM(fine_gbp) FROM loans WHERE genre='crime'"),
    ("show loan 504", "SELECT title, borrowed_on FROM loans WHERE loan_id=504"),
    ("How many loans were borrowed between February and March 2024?", "SELECT COUNT(*) FROM loans WHERE borrowed_on>='2024-02-01' AND borrowed_on<'2024-04-01'"),
    ("What is the average age of members?", "SELECT ROUND(AVG(age),2) FROM members"),
    ("How many loans of poetry or history in 2024?", "SELECT genre, COUNT(*) FROM loans WHERE genre IN ('poetry','history') GROUP BY 1"),
    ("highest fine on a loan", "SELECT loan_id, fine_gbp FROM loans ORDER BY fine_gbp DESC LIMIT 1"),
]  # fmt: skip

# The questions of the next two were written before their first run, by other rules than those now used.
SUPPORT = {
    "tickets.csv": """\
ticket_id,opened_at,closed_at,channel,priority,product_line,agent,region,handling_hours,satisfaction_score,reopened
T-5001,2025-09-01 09:10,2025-09-01 15:00,email,low,Kettles,Nadia Okoro,North America,5.8,4,no
T-5002,2025-09-03 11:25,2025-09-04 10:00,phone,high,Toasters,Finn Berg,Europe,22.6,3,yes
T-5003,2025-09-12 08:00,2025-09-12 09:30,chat,medium,Kettles,Nadia Okoro,Asia Pacific,1.5,5,no
T-5004,2025-10-02 13:45,2025-10-05 12:00,email,high,Blenders,Lou Park,Europe,70.2,2,yes
T-5005,2025-10-10 16:20,2025-10-10 18:00,phone,low,Toasters,Finn Berg,Europe,1.7,5,no
T-5006,2025-10-28 07:30,2025-10-30 07:30,chat,urgent,Blenders,Lou Park,North America,48,1,no
T-5007,2025-11-04 10:00,,email,high,Kettles,Nadia Okoro,Europe,,,no
T-5008,2025-11-15 12:12,2025-11-16 09:12,email,medium,Coffee Makers,Finn Berg,Asia Pacific,21,4,no
T-5009,2025-12-01 09:00,,phone,urgent,Blenders,Lou Park,North America,,,no
T-5010,2025-12-09 14:40,2025-12-09 20:40,chat,low,Coffee Makers,Nadia Okoro,Europe,6,5,no
""",
    "products.csv": """\
sku,product_line,model,list_price_eur,weight_kg,colour,discontinued,launched_on
KET-01,Kettles,Aqua One,39.90,1.2,white,no,2021-03-01
KET-02,Kettles,Aqua Pro,59.50,1.4,black,no,2023-09-15
TOA-10,Toasters,Crisp Duo,45.00,1.9,white,yes,2019-05-20
TOA-11,Toasters,Crisp Quad,79.00,3.1,steel,no,2022-02-02
BLE-05,Blenders,Vortex,119.00,4.0,black,no,2024-01-10
COF-20,Coffee Makers,Barista Mini,149.00,5.5,steel,no,2023-11-01
COF-21,Coffee Makers,Barista Max,329.00,9.8,black,no,2025-04-04
""",
}
SUPPORT_QUESTIONS = [
    ('How many tickets came in by email?', "SELECT COUNT(*) FROM tickets WHERE channel='email'"),
    ('Average satisfaction score for Finn Berg', "SELECT ROUND(AVG(satisfaction_score),2) FROM tickets WHERE agent='Finn Berg'"),
    ('What is the heaviest product we sell?', 'SELECT model, weight_kg FROM products ORDER BY weight_kg DESC LIMIT 1'),
    ('which products cost less than 50 euros', 'SELECT model FROM products WHERE list_price_eur<50'),
    ('number of urgent tickets', "SELECT COUNT(*) FROM tickets WHERE priority='urgent'"),
    ('Which agent handled T-5004?', "SELECT agent FROM tickets WHERE ticket_id='T-5004'"),
    ('Total handling hours on blenders', "SELECT SUM(handling_hours) FROM tickets WHERE product_line='Blenders'"),
    ('What colour is the Vortex?', "SELECT colour FROM products WHERE model='Vortex'"),
    ('how many models are black?', "SELECT COUNT(*) FROM products WHERE colour='black'"),
]  # fmt: skip

GALLERY = """
CREATE TABLE artists (artistId INTEGER PRIMARY KEY, artistName TEXT, homeCountry TEXT);
INSERT INTO artists VALUES (1,'Nils Aker','Norway'),(2,'Vera Mints','France'),(3,'The Quiet Pilots','Canada'),(4,'Tamsin Bell','United Kingdom');
CREATE TABLE exhibitions (code TEXT PRIMARY KEY, title TEXT, venue TEXT, openedOn TEXT, closedOn TEXT, visitors INTEGER, ticketPriceGBP REAL, curator TEXT);
INSERT INTO exhibitions VALUES ('EX-01','Salt and Glass','North Hall','2023-01-14','2023-04-30',18250,12.5,'Priya Shah'),
('EX-02','Paper Birds','Annexe','2023-03-02','2023-06-18',7420,8,'Tobias Lund'),('EX-03','Lines of Force','North Hall','2023-06-10','2023-10-01',31200,14,'Priya Shah'),
('EX-04','Small Rooms','Annexe','2023-09-09','2024-01-07',5150,6,'Greta Olsen'),('EX-05','Night Gardens','Rotunda','2024-02-17','2024-05-26',22980,12.5,'Tobias Lund'),
('EX-06','Stone Weather','Rotunda','2024-06-08',NULL,9870,10,'Priya Shah');
CREATE TABLE works (workId INTEGER PRIMARY KEY, artistId INTEGER REFERENCES artists(artistId), workTitle TEXT, medium TEXT, yearMade INTEGER, heightCm REAL, insuredValueGBP INTEGER, onLoan TEXT, exhibition TEXT REFERENCES exhibitions(code));
INSERT INTO works VALUES (11,1,'Fjord Study','oil',1998,80,42000,'no','EX-01'),(12,1,'Low Tide','oil',2003,120,65000,'yes','EX-03'),(13,2,'Bleu','textile',2015,210,18000,'no','EX-02'),
(14,3,'Flight Log','video',2019,0,9000,'yes','EX-05'),(15,3,'Static','video',2021,0,12000,'no','EX-05'),(16,4,'Chalk Figure','sculpture',1987,175,150000,'yes','EX-06'),(17,4,'Barrow','sculpture',1991,140,98000,'no','EX-06'),(18,2,'Ocre','textile',2018,190,21000,'no','EX-04');
"""
GALLERY_QUESTIONS = [
    ('How many exhibitions were held in the North Hall?', "SELECT COUNT(*) FROM exhibitions WHERE venue='North Hall'"),
    ('Which exhibition had the most visitors?', 'SELECT title, visitors FROM exhibitions ORDER BY visitors DESC LIMIT 1'),
    ('Who curated Paper Birds?', "SELECT curator FROM exhibitions WHERE title='Paper Birds'"),
    ('How many visitors in total came to exhibitions by Priya Shah?', "SELECT SUM(visitors) FROM exhibitions WHERE curator='Priya Shah'"),
    ('average ticket price at the Rotunda', "SELECT ROUND(AVG(ticketPriceGBP),2) FROM exhibitions WHERE venue='Rotunda'"),
    ('What is the total insured value of the sculptures?', "SELECT SUM(insuredValueGBP) FROM works WHERE medium='sculpture'"),
    ('Which works are insured for more than 50,000 pounds?', 'SELECT workTitle FROM works WHERE insuredValueGBP>50000'),
    ('When did Night Gardens open?', "SELECT openedOn FROM exhibitions WHERE title='Night Gardens'"),
    ('How many exhibitions opened in 2023?', "SELECT COUNT(*) FROM exhibitions WHERE openedOn LIKE '2023%'"),
    ('cheapest exhibition ticket', 'SELECT title, ticketPriceGBP FROM exhibitions ORDER BY ticketPriceGBP LIMIT 1'),
    ('What is the tallest work?', 'SELECT workTitle, heightCm FROM works ORDER BY heightCm DESC LIMIT 1'),
    ('How many works were made before 2000?', 'SELECT COUNT(*) FROM works WHERE yearMade<2000'),
    ('Tell me about EX-05', "SELECT title, venue FROM exhibitions WHERE code='EX-05'"),
]  # fmt: skip

BEYOND = {
    "CLINIC": [
        "Which doctor had the most visits?",
        "What share of visits needed a follow-up?",
        "visits per department",
        "How many visits with Ines Costa were not missed?",
        "How many different doctors are there?",
        "average fee by department since February",
    ],
    "LIBRARY": ["How many loans have not been returned?", "Which member has the most loans?", "loans per town"],
    "SUPPORT": [
        "How many tickets are still open?",
        "What percentage of European tickets were reopened?",
        "Tickets by region, please",
        "Compare chat and phone: how many tickets each?",
        "How many tickets did Nadia get that were not from Europe?",
    ],
    "GALLERY": ["which artist has the most works", "works per medium", "What share of works are textile?"],
}
"""Questions that take groups, shares or exclusions, by database."""

ELSEWHERE = [
    "How do I reset my password?",
    "What is the capital of France?",
    "Why did the lights go out last night?",
    "How long should I boil an egg?",
    "What must I do if my card is declined?",
    "How much does it cost?",
    "Which is the cheapest way to get there?",
]
"""Questions that none of the databases can answer."""


def place(content, folder):
    """Writes the tables into a folder; the place a source opens: the folder, or the URL of a SQLite file."""
    if isinstance(content, dict):
        for name, text in content.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder
    with sqlite3.connect(folder / "records.db") as connection:
        connection.executescript(content)
    return f"sqlite:///{folder / 'records.db'}"
