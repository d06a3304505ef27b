"""Four small databases of different subjects, each with questions and the SELECT that answers them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

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
    ("Which doctor had the most visits?", "SELECT doctor, COUNT(*) n FROM visits GROUP BY doctor ORDER BY n DESC, doctor LIMIT 1"),
    ("Total fees for Tom Beck?", "SELECT SUM(fee_eur) FROM visits WHERE doctor='Tom Beck'"),
    ("List the visits with a wait over an hour", "SELECT visit_ref FROM visits WHERE wait_minutes>60"),
    ("How many visits in March 2025 were missed?", "SELECT COUNT(*) FROM visits WHERE visited_on LIKE '2025-03%' AND outcome='missed'"),
    ("What share of visits needed a follow-up?", "SELECT ROUND(100.0*SUM(follow_up='yes')/COUNT(*),1) FROM visits"),
    ("What happened at visit V-1006?", "SELECT outcome FROM visits WHERE visit_ref='V-1006'"),
    ("visits per department", "SELECT department, COUNT(*) FROM visits GROUP BY 1"),
    ("Which was the most expensive visit?", "SELECT visit_ref, fee_eur FROM visits ORDER BY fee_eur DESC LIMIT 1"),
    ("How many visits with Ines Costa were not missed?", "SELECT COUNT(*) FROM visits WHERE doctor='Ines Costa' AND outcome<>'missed'"),
    ("How many different doctors are there?", "SELECT COUNT(DISTINCT doctor) FROM visits"),
    ("average fee by department since February", "SELECT department, ROUND(AVG(fee_eur),2) FROM visits WHERE visited_on>='2025-02-01' GROUP BY 1"),
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
    ("How many loans have not been returned?", "SELECT COUNT(*) FROM loans WHERE returned_on IS NULL"),
    ("How many members live in York?", "SELECT COUNT(*) FROM members WHERE town='York'"),
    ("Who is the oldest member?", "SELECT name, age FROM members ORDER BY age DESC LIMIT 1"),
    ("Which genre was borrowed most often?", "SELECT genre, COUNT(*) n FROM loans GROUP BY 1 ORDER BY n DESC LIMIT 1"),
    ("How many loans were made by members from York?", "SELECT COUNT(*) FROM loans WHERE member_id IN (2,3)"),
    ("Which member has the most loans?", "SELECT name, COUNT(*) n FROM loans JOIN members ON id=member_id GROUP BY 1 ORDER BY n DESC LIMIT 1"),
    ("What was the total of fines for crime loans?", "SELECT SUM(fine_gbp) FROM loans WHERE genre='crime'"),
    ("show loan 504", "SELECT title, borrowed_on FROM loans WHERE loan_id=504"),
    ("How many loans were borrowed between February and March 2024?", "SELECT COUNT(*) FROM loans WHERE borrowed_on>='2024-02-01' AND borrowed_on<'2024-04-01'"),
    ("What is the average age of members?", "SELECT ROUND(AVG(age),2) FROM members"),
    ("Which member joined first?", "SELECT name, joined_on FROM members ORDER BY joined_on LIMIT 1"),
    ("How many loans of poetry or history in 2024?", "SELECT genre, COUNT(*) FROM loans WHERE genre IN ('poetry','history') GROUP BY 1"),
    ("highest fine on a loan", "SELECT loan_id, fine_gbp FROM loans ORDER BY fine_gbp DESC LIMIT 1"),
    ("loans per town", "SELECT town, COUNT(*) FROM loans JOIN members ON id=member_id GROUP BY 1"),
]  # fmt: skip

BIKES = {
    "trips.csv": """\
trip_id,started_at,ended_at,station,bike_type,distance_km,duration_minutes,subscriber
9001,2026-04-01 08:05,2026-04-01 08:31,Harbour Gate,electric,6.2,26,yes
9002,2026-04-01 17:40,2026-04-01 18:25,Mill Lane,classic,7.9,45,no
9003,2026-04-12 10:00,2026-04-12 12:10,Harbour Gate,classic,18.4,130,no
9004,2026-05-03 09:12,2026-05-03 09:30,Old Town,electric,4.1,18,yes
9005,2026-05-17 14:20,2026-05-17 15:02,Mill Lane,cargo,5.5,42,yes
9006,2026-06-06 11:11,2026-06-06 11:40,Old Town,classic,5.0,29,yes
9007,2026-06-20 16:45,2026-06-20 18:05,Harbour Gate,electric,21.7,80,no
9008,2026-07-04 07:50,2026-07-04 08:02,Old Town,electric,2.9,12,yes
9009,2026-07-19 13:00,2026-07-19 14:15,Mill Lane,cargo,8.8,75,no
""",
    "stations.csv": """\
station,district,docks,opened_on
Harbour Gate,Seafront,24,2022-03-01
Mill Lane,North,16,2023-05-10
Old Town,Centre,30,2021-09-01
""",
}
BIKES_QUESTIONS = [
    ("How many trips started at Harbour Gate?", "SELECT COUNT(*) FROM trips WHERE station='Harbour Gate'"),
    ("What was the longest trip?", "SELECT trip_id, duration_minutes FROM trips ORDER BY duration_minutes DESC LIMIT 1"),
    ("What is the total distance of electric trips?", "SELECT ROUND(SUM(distance_km),2) FROM trips WHERE bike_type='electric'"),
    ("How many kilometres were ridden in June 2026?", "SELECT ROUND(SUM(distance_km),2) FROM trips WHERE started_at LIKE '2026-06%'"),
    ("Which station has the most docks?", "SELECT station, docks FROM stations ORDER BY docks DESC LIMIT 1"),
    ("trips per month", "SELECT substr(started_at,1,7), COUNT(*) FROM trips GROUP BY 1"),
    ("How many trips lasted more than an hour?", "SELECT COUNT(*) FROM trips WHERE duration_minutes>60"),
    ("average duration by bike type", "SELECT bike_type, ROUND(AVG(duration_minutes),2) FROM trips GROUP BY 1"),
    ("What percentage of trips were made by subscribers?", "SELECT ROUND(100.0*SUM(subscriber='yes')/COUNT(*),1) FROM trips"),
    ("When did the Mill Lane station open?", "SELECT opened_on FROM stations WHERE station='Mill Lane'"),
    ("How many trips were not on a classic bike?", "SELECT COUNT(*) FROM trips WHERE bike_type<>'classic'"),
    ("Top 3 longest trips", "SELECT trip_id FROM trips ORDER BY duration_minutes DESC LIMIT 3"),
    ("How many trips were over 5 km in May?", "SELECT COUNT(*) FROM trips WHERE distance_km>5 AND started_at LIKE '2026-05%'"),
    ("Which bike type covered the most kilometres?", "SELECT bike_type, ROUND(SUM(distance_km),2) d FROM trips GROUP BY 1 ORDER BY d DESC LIMIT 1"),
    ("what was the shortest ride from Old Town", "SELECT trip_id, duration_minutes FROM trips WHERE station='Old Town' ORDER BY duration_minutes LIMIT 1"),
]  # fmt: skip

PAYROLL = """
CREATE TABLE employees (employee_no TEXT PRIMARY KEY, full_name TEXT, team TEXT, job_title TEXT, salary_usd INTEGER,
                        hired_on DATE, left_on DATE, remote BOOLEAN, city TEXT);
INSERT INTO employees VALUES
 ('E-100','Rosa Vale','Platform','Engineer',98000,'2018-02-01',NULL,1,'Austin'),
 ('E-101','Hugo Kerr','Platform','Manager',125000,'2016-07-11',NULL,0,'Boston'),
 ('E-102','Mina Sol','Sales','Account Executive',72000,'2020-03-16','2024-08-30',0,'Austin'),
 ('E-103','Otto Lang','Sales','Manager',110000,'2019-10-01',NULL,1,'Denver'),
 ('E-104','Pia Holm','Support','Agent',54000,'2022-05-23',NULL,1,'Boston'),
 ('E-105','Quin Abe','Support','Agent',51500,'2023-01-09','2025-02-14',0,'Denver'),
 ('E-106','Ravi Nair','Platform','Engineer',104000,'2021-11-29',NULL,1,'Austin'),
 ('E-107','Suki Mora','Finance','Analyst',83000,'2024-06-03',NULL,0,'Boston');
"""
PAYROLL_QUESTIONS = [
    ("How many employees work in Platform?", "SELECT COUNT(*) FROM employees WHERE team='Platform'"),
    ("What is the average salary of engineers?", "SELECT ROUND(AVG(salary_usd),2) FROM employees WHERE job_title='Engineer'"),
    ("Who has the highest salary?", "SELECT full_name, salary_usd FROM employees ORDER BY salary_usd DESC LIMIT 1"),
    ("How many employees were hired after 2020?", "SELECT COUNT(*) FROM employees WHERE hired_on>='2021-01-01'"),
    ("How many staff are in Boston?", "SELECT COUNT(*) FROM employees WHERE city='Boston'"),
    ("Which team has the highest average salary?", "SELECT team, ROUND(AVG(salary_usd),2) a FROM employees GROUP BY 1 ORDER BY a DESC LIMIT 1"),
    ("What is Otto Lang's job title?", "SELECT job_title FROM employees WHERE full_name='Otto Lang'"),
    ("employees by city", "SELECT city, COUNT(*) FROM employees GROUP BY 1"),
    ("Which employees earn at least 100k?", "SELECT full_name FROM employees WHERE salary_usd>=100000"),
    ("When was E-104 hired?", "SELECT hired_on FROM employees WHERE employee_no='E-104'"),
    ("Which employees left in 2025?", "SELECT full_name FROM employees WHERE left_on LIKE '2025%'"),
    ("How much is the total salary bill excluding sales?", "SELECT SUM(salary_usd) FROM employees WHERE team<>'Sales'"),
    ("Who was hired most recently?", "SELECT full_name, hired_on FROM employees ORDER BY hired_on DESC LIMIT 1"),
    ("How many employees work remotely?", "SELECT COUNT(*) FROM employees WHERE remote=1"),
]  # fmt: skip

ELSEWHERE = [
    "How do I reset my password?",
    "What is the capital of France?",
    "Can I return an opened box, and who pays the postage?",
    "Why did the lights go out last night?",
    "Explain the difference between a list and a tuple.",
    "What is 15 percent of 240?",
    "Who wrote Hamlet?",
    "How long should I boil an egg?",
    "Is parking free at the weekend?",
    "What must I do if my card is declined?",
    "Translate good morning into Danish.",
    "How much does it cost?",
    "What is the longest river in the world?",
    "Which is the cheapest way to get there?",
]
"""Questions that none of the four databases can answer."""


def place(content: str | dict[str, str], folder: Path) -> str | Path:
    """Writes the tables into a folder; the place a source opens: the folder, or the URL of a SQLite file."""
    if isinstance(content, dict):
        for name, text in content.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder
    with sqlite3.connect(folder / "records.db") as connection:
        connection.executescript(content)
    return f"sqlite:///{folder / 'records.db'}"
