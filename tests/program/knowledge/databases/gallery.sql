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
