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
